"""Compares turnpike with other servers, round after round.

In: contestants. Out: a results file, and its tables.
"""
