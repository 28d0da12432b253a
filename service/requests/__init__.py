"""What every request has, however it arrived: routing, keys, the call of its endpoint, counters and log.

`http` and `grpc` read the bytes and make a `Request`; `RequestMiddleware` handles it.
"""
