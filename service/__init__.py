"""The serving room: onnxruntime and HTTP, and neither torch nor onnx."""
