"""The data of a network: rows to measure it on, and the names of its classes and columns."""
