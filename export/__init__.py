"""The bridge from a trained network to a verified ONNX file; the one package that knows both worlds."""
