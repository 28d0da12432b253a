"""Times the steps of an export, and announces them to a progress listener."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class ProgressListener:
    """Called when a step starts, advances or finishes. Does nothing itself; override what you need."""

    def started(self, step: str) -> None:
        """A step starts."""

    def advanced(self, done: int, total: int) -> None:
        """The current step has done `done` of `total` units of work."""

    def finished(self, step: str, seconds: float) -> None:
        """A step is done."""


class Steps:
    """Runs the steps of an export. `seconds` holds the duration of each finished step."""

    def __init__(self, listener: ProgressListener | None = None) -> None:
        self.listener = listener or ProgressListener()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block as one step. A step that raises is neither timed nor reported as finished."""
        self.listener.started(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        self.listener.finished(name, self.seconds[name])
