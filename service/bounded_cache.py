"""A cache that is emptied when it is full, for values that are cheap to make again."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict with at most `max_entries` entries; adding one more drops all others first.

    Clients repeat the same few requests, so an ordering by age would cost more on every hit than it saves.
    """

    __slots__ = ("_max_entries",)

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def add(self, key: K, value: V) -> V:
        """Store and return the value."""
        if len(self) >= self._max_entries and key not in self:
            self.clear()
        self[key] = value
        return value
