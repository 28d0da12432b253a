"""Turns a PyTorch module or program into an ONNX graph, or explains in one sentence why it has none.

A `Network` comes in, a `TracedGraph` comes out. Imports only the input description, the network
and the errors of `export`.
"""
