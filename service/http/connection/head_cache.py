"""Cache of parsed request heads, since a client sends the same head again and again.

Looking up a head of six headers takes 0.4 µs, parsing it with httptools 2.5 µs.
"""

from __future__ import annotations

from service.bounded_cache import BoundedCache
from service.http.request import RequestHead

HEAD_END = b"\r\n\r\n"
HEAD_END_LENGTH = 4
# More than the heads in use at a time. A client has one for each length of body that it sends.
MAX_CACHED_HEADS = 2048
# longer heads are not cached
MAX_HEAD_BYTES = 1024
# a head with one of these headers differs in each request, so it is not cached
UNIQUE_HEADERS = frozenset({b"x-request-id", b"traceparent"})


class HeadCache:
    """Parsed heads, by their bytes."""

    def __init__(self) -> None:
        # the bytes of a head -> the parsed head, its length, and the length of the whole request
        self._heads: BoundedCache[bytes, tuple[RequestHead, int, int]] = BoundedCache(MAX_CACHED_HEADS)

    def find(self, data: bytes) -> tuple[RequestHead, int, int] | None:
        """The cached head, its length and that of `data`; None unless data is exactly one request."""
        found = self._heads.get(data[: data.find(HEAD_END) + HEAD_END_LENGTH])
        return found if found is not None and found[2] == len(data) else None

    def get(self, head_bytes: bytes) -> RequestHead | None:
        """The cached head with these bytes."""
        found = self._heads.get(head_bytes)
        return None if found is None else found[0]

    def add(self, head_bytes: bytes, head: RequestHead) -> None:
        """Store a head, unless requests with exactly this head are rare."""
        start = len(head_bytes)
        length = head.content_length
        if length is not None and start <= MAX_HEAD_BYTES and UNIQUE_HEADERS.isdisjoint(head.fields):
            self._heads.add(head_bytes, (head, start, start + length))
