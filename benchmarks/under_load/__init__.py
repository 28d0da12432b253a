"""Measures a loaded server: memory, use of time, and answers under overload or while a model is loaded."""
