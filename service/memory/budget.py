"""Counts the bytes that the requests of a worker hold in memory, and refuses those beyond `--max-held`."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Protocol

from turnpike.service.errors import OverloadedError, TooLargeError

# requests that were refused leave memory that is not free at once
FULL_SECONDS = 10.0


class BudgetedRequest(Protocol):
    """A request, which knows the number of bytes that are counted for it."""

    budgeted_bytes: int


class MemoryBudget:
    """Limits the bytes of all request bodies and large answers in this worker's memory to `capacity`.

    A method that would exceed it raises OverloadedError, and counts nothing. It raises TooLargeError if the
    whole budget would not be enough: trying again would never help.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.bytes = 0
        self._full_at = -math.inf

    def take(self, request: BudgetedRequest, size: int) -> None:
        """Count `size` more bytes for the request, until `release` is called."""
        self.expect_room(size, request.budgeted_bytes)
        self.bytes += size
        request.budgeted_bytes += size

    def recount(self, request: BudgetedRequest, size: int) -> None:
        """Count `size` bytes for the request from now on, in place of its body."""
        self.expect_room(size - request.budgeted_bytes, request.budgeted_bytes)
        self.bytes += size - request.budgeted_bytes
        request.budgeted_bytes = size

    def release(self, request: BudgetedRequest) -> None:
        """Count no bytes for the request any more."""
        self.bytes -= request.budgeted_bytes
        request.budgeted_bytes = 0

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Count an answer of this size while it is sent."""
        self.expect_room(size)
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size

    def expect_room(self, size: int, counted: int = 0) -> None:
        """Raise an error if there is no room for `size` bytes beside those `counted` for the same request."""
        if self.bytes + size > self.capacity:
            if counted + size > self.capacity:
                raise TooLargeError(
                    f"server: expected at most {self.capacity} bytes of memory (--max-held) for a request or "
                    f"its answer, got {counted + size}; send fewer rows at a time"
                )
            raise self.used_up()

    def used_up(self) -> OverloadedError:
        """The error for a request for which there is no room."""
        self._full_at = time.monotonic()
        return OverloadedError("server: the memory for requests (--max-held) is used up; try again")

    def was_full(self) -> bool:
        """Whether there was no room for a request in the last seconds."""
        return time.monotonic() - self._full_at < FULL_SECONDS
