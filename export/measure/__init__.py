"""Measures an open model on rows of data: gate statistics, lesion curves, accuracy, samples.

Takes a runtime and rows, returns records of the manifest. Imports only `network` and `errors` of `export`.
"""
