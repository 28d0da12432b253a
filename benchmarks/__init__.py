"""Benchmarks of turnpike, compared with other servers and with onnxruntime without a server."""
