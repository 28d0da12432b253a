"""HTTP/1.1: bytes of a connection come in, requests go to their endpoints, and their answers go out as bytes.

`connection` is our own server, `asgi` the adapter for any other one. Knows nothing of models.
"""
