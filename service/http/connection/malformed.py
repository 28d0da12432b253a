"""Checks request heads, and makes the answer to input that is no valid request."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from service.http.request import Headers
from service.http.response import STATUS_LINES

VERSIONS = ("1.1", "1.0")


class MalformedRequestError(Exception):
    """The input is no valid request. Raised while parsing, with the status and the message of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def head_size(url: bytes, headers: Headers) -> int:
    """The bytes of a head, without its method and version."""
    # each line has a colon, a space and a line end of two bytes
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def body_length(version: str, headers: Headers) -> int | None:
    """The length of the body by its headers; None for chunks. Raises MalformedRequestError."""
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
    """The bytes of the answer to malformed input, which is the last answer of its connection."""
    body = orjson.dumps({"error": str(error)})
    lines = b"".join(b"%b: %b\r\n" % header for header in default_headers)
    return (
        b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
        b"x-content-type-options: nosniff\r\nx-request-id: %b\r\n\r\n%b"
        % (STATUS_LINES[error.status], lines, len(body), request_id.encode(), body)
    )
