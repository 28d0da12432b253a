"""Connections of our own server: accepts them, parses their bytes, and writes the answers in order.

Requests go to the middleware through `HttpApplication`.
"""
