"""Turns a PyTorch module or program into an ONNX graph, or explains in one sentence why it has none.

A `Source` comes in, a `TracedGraph` comes out. Imports only the input description, source and errors of
`export`.
"""
