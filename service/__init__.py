"""The inference server: serves exported models over HTTP with onnxruntime. Imports neither torch nor onnx."""
