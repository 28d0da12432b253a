"""Operators on terms, with which those of ATen and of ONNX are written, so that both name functions alike."""
