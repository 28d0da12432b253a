"""Graphs of ONNX in files from any tool: checked before anything is run, and brought to one form."""
