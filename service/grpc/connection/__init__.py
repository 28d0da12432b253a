"""HTTP/2 connections of gRPC clients: bytes in, calls out. `service.grpc.methods` answers the calls.

HTTP/2 is read and written here, in event-loop callbacks, as HTTP/1.1 is in `service.http.connection`. The
library `hpack` decodes headers. Only what gRPC uses is here: no server push, no priorities.
"""
