"""Reads the network, weights, labels and rows that the user gives. Only `.py` files are ever executed.

`load.load_source` is the entry point: a path or an object comes in, a `Network` comes out. May import
`export.trace` and `models`.
"""
