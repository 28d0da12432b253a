"""Ctrl-C and SIGTERM as a wish that the work in hand is put in order first."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# what a shell reports for a process that ended by SIGINT
INTERRUPTED = 130


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether someone wants the block to stop; a second Ctrl-C stops it at once."""
    wanted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal wanted
        if wanted:
            raise KeyboardInterrupt
        wanted = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
