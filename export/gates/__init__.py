"""Finds the gates of an ONNX graph and adds them to it as hidden outputs with levers.

`instrument.instrument(model)` is the entry point: a graph comes in, the same graph and a description of its
gates come out. `graph` reads nodes, shapes and loops. `algebra` writes what a value computes as a sum of
products, and knows sigmoids and their biases. `highways` tells which of these sums are highways, and finds
others by their values, in the exact arithmetic of `identity`. The modules beside these folders change the
graph. Imports nothing else of `export`.
"""
