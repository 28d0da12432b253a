"""Handles Ctrl-C and SIGTERM: the load test ends early, and still reports what it measured."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once a signal has arrived; a second signal ends the process at once.

    The handlers are gevent's, because Python's own handlers do not run while gevent's event loop waits.
    """
    stopping = False
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for handler in handlers:
            handler.cancel()
        for number, action in previous.items():
            signal.signal(number, action)

    def on_signal() -> None:
        nonlocal stopping
        restore()
        stopping = True

    handlers = [gevent.signal_handler(number, on_signal) for number in SIGNALS]
    try:
        yield lambda: stopping
    finally:
        restore()
