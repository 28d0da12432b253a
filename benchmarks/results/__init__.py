"""Results files: their format, parts that all tables share, and the results that the documentation shows."""
