"""The ground floor: what several packages need. Imports the standard library alone."""
