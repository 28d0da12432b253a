"""Measures how the cost of a request grows with its rows, with the load, and with the model.

Out: a results file, its tables and plots.
"""
