"""Ctrl-C and SIGTERM as a wish that a test ends early, and is told of all the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[Event]:
    """Give an event that is set when somebody wants the block to end; a second Ctrl-C ends it at once."""
    wanted = Event()
    before = {number: signal.getsignal(number) for number in NUMBERS}

    def restore() -> None:
        for handler in handlers:
            handler.cancel()
        for number, action in before.items():
            signal.signal(number, action)

    def note() -> None:
        restore()
        wanted.set()

    handlers = [gevent.signal_handler(number, note) for number in NUMBERS]
    try:
        yield wanted
    finally:
        restore()
