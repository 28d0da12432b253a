"""Ctrl-C, SIGTERM and a terminal that closes, as a wish that is looked at where processes can be ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tune.errors import StoppedError

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# raises a StoppedError when somebody wants it
Check = Callable[[], None]


@contextmanager
def interruptible() -> Iterator[Check]:
    """Give what stops the block at a place of its choice; no signal ends it anywhere else."""
    wanted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal wanted
        wanted = True

    def check() -> None:
        if wanted:
            raise StoppedError("stopped")

    before = {number: signal.signal(number, note) for number in NUMBERS}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
