"""Why streams and connections of gRPC ended: the labels of two counters.

A client may report that a call failed although nothing is in the log, because the stream or its connection
ended before the call was answered. Every end has exactly one of these reasons.
"""

from __future__ import annotations

from typing import Literal, Protocol

from turnpike.service.http.connection.shared_state import HttpApplication

# A stream that ends with its connection has the connection's reason.
End = Literal[
    # ---- streams alone
    "answered",
    # answered with an error, which the counters of requests have too
    "failed",
    # RST_STREAM from the client: it gave up, or its deadline has passed
    "reset",
    # RST_STREAM from us, for what the client sent on the stream
    "invalid",
    # the client had too many calls open, or the final GOAWAY was sent; it may repeat the call elsewhere
    "refused",
    # an error in the code of the service
    "bug",
    # ---- streams and connections
    # the client closed the connection, or its machine or the network did
    "client_left",
    # the client broke the protocol or exceeded a limit
    "client_error",
    # a preface or headers did not arrive in time
    "slow_headers",
    # the client read nothing of its answers
    "unread",
    # the client's machine did not answer a ping
    "silent",
    # the service stops, and the call was cut off or the connection was closed
    "stopped",
    # ---- connections alone
    "idle",
]


class GrpcConnectionApplication(HttpApplication, Protocol):
    """What a connection of gRPC needs of the application that it serves."""

    def count_stream_end(self, reason: End) -> None:
        """Count a stream that ended."""

    def count_connection_end(self, reason: End) -> None:
        """Count a connection that ended."""

    async def compressed(self, body: bytes, encoding: str) -> bytes | None:
        """A message in its compressed form; None if that does not pay."""
