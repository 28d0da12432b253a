"""The head of a request: its size, and what it must say."""

from __future__ import annotations

from service.http.no_request import NoRequest

Headers = list[tuple[bytes, bytes]]

VERSIONS = ("1.1", "1.0")


def size(url: bytes, headers: Headers) -> int:
    """Its bytes, but for those of its method and version."""
    # beside each name and value there are a colon, a space and the end of the line
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def length(version: str, headers: Headers) -> int | None:
    """The bytes of the body that it announces, None if it does not know; refuses what makes no request."""
    if version not in VERSIONS:
        raise NoRequest(400, f"the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/{version}")
    hosts, found = 0, 0
    chunked = False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            found = int(value)
        elif name == b"transfer-encoding":
            chunked = True
    if hosts > 1:
        raise NoRequest(400, f"the headers: expected one Host, got {hosts}")
    return None if chunked else found
