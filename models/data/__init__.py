"""Data sets: a name or a path comes in, rows split into training, validation and test rows go out.

Imports nothing else of `models` but its errors.
"""
