"""HTTP/1.1: bytes of a connection come in, requests go to their endpoints, and their answers go out as bytes.

Knows nothing of models. Imports `protocol`, `config`, `memory` and `telemetry`.
"""
