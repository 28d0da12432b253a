"""The ground floor: what several packages need. Imports the standard library, and NumPy in `datatypes`."""
