"""Reads rows: finds the files, splits them into parts, and converts their rows to inputs of the model."""
