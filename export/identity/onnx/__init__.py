"""Runs ONNX graphs on terms."""
