"""Input that never becomes a request: what is checked of a head, and how it is rejected."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from service.http.request import Headers
from service.http.response import STATUS_LINES

VERSIONS = ("1.1", "1.0")


class MalformedRequestError(Exception):
    """Raised while parsing: the status and the message to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def head_size(url: bytes, headers: Headers) -> int:
    """The bytes of a head, without its method and version."""
    # a colon, a space and the line's end beside each name and value
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def body_length(version: str, headers: Headers) -> int | None:
    """The bytes of the body that a head announces, None for one in chunks; raises what makes no request."""
    if version not in VERSIONS:
        raise MalformedRequestError(400, f"the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/{version}")
    hosts, length = 0, 0
    chunked = False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = True
    if hosts > 1:
        raise MalformedRequestError(400, f"the headers: expected one Host, got {hosts}")
    return None if chunked else length


def rejection(
    error: MalformedRequestError, default_headers: Iterable[tuple[bytes, bytes]], request_id: str
) -> bytes:
    """The last answer of a connection."""
    body = orjson.dumps({"error": str(error)})
    lines = b"".join(b"%b: %b\r\n" % header for header in default_headers)
    return (
        b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
        b"x-content-type-options: nosniff\r\nx-request-id: %b\r\n\r\n%b"
        % (STATUS_LINES[error.status], lines, len(body), request_id.encode(), body)
    )
