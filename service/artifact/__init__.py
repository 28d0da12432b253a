"""The contract between `export` and the service: what an exported `.onnx` file contains and how it is run.

`export` writes files with these modules, and the service reads and runs them with the same ones.
Imports only `service.errors`, `service.inference_types` and `service.low_priority`.
"""
