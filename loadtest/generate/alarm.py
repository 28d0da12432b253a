"""Sleep that ends on time: gevent's own is up to a millisecond late, which a schedule would show."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

import gevent

# Linux: CLOCK_MONOTONIC, and TFD_NONBLOCK | TFD_CLOEXEC
MONOTONIC = 1
FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
READ = 1


class Alarm:
    """Wakes the one greenlet that sleeps by it, within some ten microseconds where the system is Linux."""

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._libc = ctypes.CDLL(None)
        self._timer = self._libc.timerfd_create(MONOTONIC, FLAGS) if sys.platform == "linux" else -1
        self._precise = self._timer >= 0
        self._ready = self._hub.loop.io(self._timer, READ) if self._precise else None

    def sleep(self, seconds: float) -> None:
        """Let the other greenlets run for so long."""
        if not self._precise:
            gevent.sleep(seconds)
            return
        whole = int(seconds)
        # a time of zero would stop the timer
        rest = max(1, int((seconds - whole) * 1e9))
        setting = struct.pack("@llll", 0, 0, whole, rest)
        self._libc.timerfd_settime(self._timer, 0, setting, None)
        self._hub.wait(self._ready)
        os.read(self._timer, 8)

    def close(self) -> None:
        if self._precise:
            os.close(self._timer)
            self._precise = False
