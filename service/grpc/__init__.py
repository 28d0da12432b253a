"""gRPC on a port of its own: bytes in, calls to the models of the same worker, bytes out.

`connection` turns bytes into calls and answers into bytes, `methods` answers the calls, and `application` has
the table of them. Models, batcher, keys, limits, counters and log are those of HTTP: a call is a request that
goes through the same middleware.
"""
