"""Searches an input on which a network and a file that was decided to be different really differ.

The decision needs no such input: it holds in exact arithmetic. But a person who can run both on one row, and
see two answers, knows where to look. `find_witness.find_witness` runs the network in PyTorch and the file in
onnxruntime, and counts only a difference that rounding does not explain. Many differences have no witness in
float32.
"""
