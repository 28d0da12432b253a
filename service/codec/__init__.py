"""Reads and writes the bodies of requests: bytes to arrays and arrays to bytes, for /v2 and for /v1.

Knows formats but neither HTTP nor models; of the folders it imports only `artifact`.
"""
