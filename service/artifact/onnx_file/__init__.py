"""Reads parts of an `.onnx` file from its bytes, without the package onnx."""
