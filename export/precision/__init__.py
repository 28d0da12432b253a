"""Converts a proved graph to a lower precision, and compares the variant with fp32.

Takes the bytes of the fp32 graph, returns the bytes of the variant and a `Comparison`. Imports `measure` and
`trace` of `export`.
"""
