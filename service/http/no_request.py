"""What a client sent that never becomes a request, and what it is answered."""

from __future__ import annotations

import http
from collections.abc import Iterable

import orjson

from service.http.request_context import CLOSE, NOSNIFF


class NoRequest(Exception):  # noqa: N818, it is the client's and not ours
    """Raised through the parser, which stops at it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text

    def answer(self, headers: Iterable[tuple[bytes, bytes]], request_id: str | None) -> bytes:
        """The last answer of a connection, with these headers among its own."""
        body = orjson.dumps({"error": self.text})
        own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), CLOSE, NOSNIFF]
        if request_id is not None:
            own.append((b"x-request-id", request_id.encode()))
        lines = [b"HTTP/1.1 %d %b" % (self.status, http.HTTPStatus(self.status).phrase.encode())]
        lines += [b"%b: %b" % header for header in (*headers, *own)]
        return b"\r\n".join([*lines, b"", body])
