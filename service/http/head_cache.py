"""Remembers parsed request heads: a client sends the same bytes again and again.

Looking up the bytes of a head takes 0.6 µs, parsing them with httptools 6 µs (six headers).
"""

from __future__ import annotations

from service.bounded_cache import BoundedCache
from service.http.request import RequestHead

HEAD_END = b"\r\n\r\n"
# more heads than clients in use at a time have (a body of another length makes another head), and the
# longest
MAX_CACHED_HEADS, MAX_HEAD_BYTES = 2048, 1024
# a head with one of these differs in each request, so it is not worth remembering
UNIQUE_HEADERS = frozenset({b"x-request-id", b"traceparent"})


class HeadCache:
    """Heads by their bytes."""

    def __init__(self) -> None:
        self._heads: BoundedCache[bytes, RequestHead] = BoundedCache(MAX_CACHED_HEADS)

    def find(self, data: bytes) -> tuple[RequestHead, int] | None:
        """The head of a piece that is exactly one request, and where its body begins; None if not known."""
        start = data.find(HEAD_END) + len(HEAD_END)
        head = self._heads.get(data[:start])
        return None if head is None or start + (head.content_length or 0) != len(data) else (head, start)

    def add(self, data: bytes, head: RequestHead) -> None:
        """Remember the head of a piece, if the piece is exactly one request."""
        if head.content_length is None or not UNIQUE_HEADERS.isdisjoint(head.fields):
            return
        start = data.find(HEAD_END) + len(HEAD_END)
        if start <= MAX_HEAD_BYTES and start + head.content_length == len(data):
            self._heads.add(data[:start], head)
