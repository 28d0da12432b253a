"""Open loop: sends requests on a random schedule (a Poisson process) that does not wait for answers."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import sys
from collections.abc import Iterator

import gevent
from gevent.event import Event

from loadtest.generate.sender import PreparedRequest, Sender
from loadtest.ledger import now

# constants of Linux' timerfd_create(2)
CLOCK_MONOTONIC = 1
TIMERFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
# gevent's flag for "ready to read"
READ = 1
# requests of one process that may wait for their answers at the same time; each holds a connection
MAX_IN_FLIGHT = 2000
# longest sleep in seconds: a schedule notices a new rate after at most this time
MAX_SLEEP_SECONDS = 0.05


class PreciseTimer:
    """Sleep of one greenlet, exact to about ten microseconds on Linux.

    gevent.sleep() can end up to a millisecond late, which would skew the schedule.
    """

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._libc = ctypes.CDLL(None)
        on_linux = sys.platform == "linux"
        self._timer = self._libc.timerfd_create(CLOCK_MONOTONIC, TIMERFD_FLAGS) if on_linux else -1
        self._precise = self._timer >= 0
        self._ready = self._hub.loop.io(self._timer, READ) if self._precise else None

    def sleep(self, seconds: float) -> None:
        """Let other greenlets run for this time."""
        if not self._precise:
            gevent.sleep(seconds)
            return
        whole = int(seconds)
        # at least 1 ns: a time of zero would disarm the timer
        nanoseconds = max(1, int((seconds - whole) * 1e9))
        setting = struct.pack("@llll", 0, 0, whole, nanoseconds)
        self._libc.timerfd_settime(self._timer, 0, setting, None)
        self._hub.wait(self._ready)
        os.read(self._timer, 8)

    def close(self) -> None:
        if self._precise:
            os.close(self._timer)
            self._precise = False


class PoissonSchedule:
    """Sends requests at random times, like many clients that do not know of each other.

    Latency counts from the time at which a request was due. So every request that a stall of the server, or
    of this process, holds up shows the stall.
    """

    def __init__(
        self,
        sender: Sender,
        requests: Iterator[PreparedRequest],
        seed: str,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._max_in_flight = max_in_flight
        self._not_sent = f"not sent: {max_in_flight} in flight"
        self._random = random.Random(seed)  # noqa: S311
        self._rate = 0.0
        self._due = 0.0
        self._stopped = False
        self._changed = Event()

    @property
    def rate(self) -> float:
        """Requests per second; 0 sends nothing."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if rate == self._rate:
            return
        self._rate = rate
        # a Poisson process has no memory: the next time may be drawn again at the new rate
        self._due = now() + self._gap() if rate else 0.0
        self._changed.set()

    def run(self) -> None:
        """Send until `stop` is called."""
        timer = PreciseTimer()
        try:
            while not self._stopped:
                gevent.sleep(0)  # when behind schedule, sent requests and their answers still get their turn
                if not self._rate:
                    self._changed.clear()
                    self._changed.wait()
                elif (left := self._due - now()) > 0:
                    timer.sleep(min(left, MAX_SLEEP_SECONDS))
                else:
                    self._send(self._due)
                    self._due += self._gap()
        finally:
            timer.close()

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def _send(self, due: float) -> None:
        request = next(self._requests)
        if self._sender.in_flight >= self._max_in_flight:
            self._sender.record_unsent(request, due, self._not_sent)
        else:
            self._sender.launch(request, due)

    def _gap(self) -> float:
        """Random time until the next request."""
        return self._random.expovariate(self._rate)
