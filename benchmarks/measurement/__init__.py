"""One measurement: starts a server, puts load on it, and reads its CPU time and memory.

In: a contestant and a workload. Out: rates, latency and CPU time. Also measures onnxruntime without a server.
"""
