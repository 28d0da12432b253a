"""Ctrl-C and SIGTERM as a request to save and stop, instead of an exception."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# the exit status that shells report for a process ended by SIGINT: 128 + 2
INTERRUPTED_EXIT_STATUS = 130


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once Ctrl-C or SIGTERM has come.

    The first signal only sets the flag. A second one raises KeyboardInterrupt in the block.
    """
    interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
