"""Heads of requests that were parsed before: a client writes the same bytes again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

END = b"\r\n\r\n"
# heads that are kept, and the longest such; clients differ, and so do their bodies' sizes
MOST, LONGEST = 2048, 1024

# headers that differ from request to request: a head that has one never comes again
UNIQUE = frozenset({b"x-request-id", b"traceparent"})

# given a connection, what answers a request over it whose body is there
Way = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Head:
    """What it came to: how many bytes follow it, and the way of the request."""

    size: int
    way: Way


class Heads:
    """The same bytes mean the same, wherever a request begins with them."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    def find(self, data: bytes) -> Head | None:
        """The head of a piece that is one whole request, where it is known."""
        end = data.find(END) + len(END)
        head = self._known.get(data[:end])
        return head if head is not None and end + head.size == len(data) else None

    def keep(self, data: bytes, size: int, way: Way) -> None:
        """Remember the head of a piece, if that is one whole request with a body of this size."""
        end = data.find(END) + len(END)
        if end <= LONGEST and end + size == len(data):
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[data[:end]] = Head(size, way)
