"""Finds the gates of an ONNX graph and adds them to it as hidden outputs with levers.

`instrument.instrument(model)` is the entry point: a graph comes in, the same graph and a description of its
gates come out. Stages, in order: `graph_view`, `value_ranges`, `sigmoids`, `gated_sums`, `logits`, `find`,
`gate_names`, `levers`, `instrument`. Imports nothing else of `export`.
"""
