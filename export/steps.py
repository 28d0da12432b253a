"""The steps of an export as they happen: timed for the report, and told to whoever watches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class ProgressListener:
    """Hears of the steps; this one says nothing."""

    def began(self, step: str) -> None:
        """A step begins."""

    def moved(self, done: int, total: int) -> None:
        """The step that runs has done so much of its work."""

    def ended(self, step: str, seconds: float) -> None:
        """A step is done."""


class Steps:
    """Runs one step after the other. `seconds` holds how long each took."""

    def __init__(self, watcher: ProgressListener | None = None) -> None:
        self.watcher = watcher or ProgressListener()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block, unless it fails."""
        self.watcher.began(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        self.watcher.ended(name, self.seconds[name])
