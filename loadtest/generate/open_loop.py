"""Open loop: sends requests on a random schedule (a Poisson process) that does not wait for answers."""

from __future__ import annotations

import ctypes
import math
import os
import random
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gevent

from turnpike.loadtest.generate.connection import READABLE
from turnpike.loadtest.generate.sender import PreparedRequest, Sender
from turnpike.loadtest.ledger import now

# constants of Linux' timerfd_create(2)
CLOCK_MONOTONIC = 1
TIMERFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
# requests of one process that may wait for their answers at the same time; each holds a connection
MAX_IN_FLIGHT = 2000
# At a rate at which more than one request is due in this time, those of one wait are sent together: waking
# for each of them would take more CPU time than sending it.
GROUP_SECONDS = 0.0002
# requests sent before answers get their turn: a schedule that is behind must not delay their times
MAX_SENDS_PER_TURN = 32


class PreciseTimer:
    """Ends the event loop's wait for events, exact to about ten microseconds on Linux.

    gevent's own timers can be up to a millisecond late, which would skew the schedule.
    """

    def __init__(self, on_time: Callable[[], None]) -> None:
        self._on_time = on_time
        self._loop = gevent.get_hub().loop
        self._libc = ctypes.CDLL(None)
        on_linux = sys.platform == "linux"
        self._timer = self._libc.timerfd_create(CLOCK_MONOTONIC, TIMERFD_FLAGS) if on_linux else -1
        self._is_precise = self._timer >= 0
        self._watcher: Any = None
        if self._is_precise:
            self._watcher = self._loop.io(self._timer, READABLE)
            self._watcher.start(self._on_time)

    def wake_in(self, seconds: float) -> None:
        """End the wait after this time; replaces the time that was set before."""
        # at least 1 ns: zero would turn the timer off
        self._set(max(seconds, 1e-9))

    def turn_off(self) -> None:
        self._set(0.0)

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if self._is_precise:
            os.close(self._timer)
            self._is_precise = False

    def _set(self, seconds: float) -> None:
        if self._is_precise:
            # setting the timer also makes its descriptor unreadable again
            whole = int(seconds)
            setting = struct.pack("@llll", 0, 0, whole, math.ceil((seconds - whole) * 1e9))
            self._libc.timerfd_settime(self._timer, 0, setting, None)
            return
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if seconds:
            self._watcher = self._loop.timer(seconds)
            self._watcher.start(self._on_time)


class PoissonSchedule:
    """Sends requests at random times, like many clients that do not know of each other.

    Latency counts from the time at which a request was due. So every request that a stall of the server, or
    of this process, holds up shows the stall.

    All requests that are due are sent together whenever the event loop is about to wait for events.
    """

    def __init__(self, sender: Sender, seed: str, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._sender = sender
        self._max_in_flight = max_in_flight
        self._not_sent = f"not sent: {max_in_flight} in flight"
        self._random = random.Random(seed)  # noqa: S311
        self._sources: list[Iterator[PreparedRequest]] = []
        self._rate = 0.0  # of each source
        self._total_rate = 0.0
        self._due = 0.0
        self._min_wait = 0.0
        self._timer = PreciseTimer(self._on_time)
        self._timer_is_set = False
        self._before_wait = gevent.get_hub().loop.prepare(ref=False)

    @property
    def rate(self) -> float:
        """Requests per second of each source; 0 sends nothing."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        self._update()

    def add(self, source: Iterator[PreparedRequest]) -> None:
        """Send requests of one more source."""
        self._sources.append(source)
        self._update()

    def remove(self, source: Iterator[PreparedRequest]) -> None:
        """Send no more requests of a source."""
        self._sources.remove(source)
        self._update()

    def close(self) -> None:
        self._before_wait.stop()
        self._before_wait.close()
        self._timer.close()

    def _update(self) -> None:
        total_rate = self._rate * len(self._sources)
        if total_rate == self._total_rate:
            return
        self._total_rate = total_rate
        self._min_wait = GROUP_SECONDS if total_rate * GROUP_SECONDS > 1 else 0.0
        if total_rate:
            # a Poisson process has no memory: the next time may be drawn again at the new rate
            self._due = now() + self._random.expovariate(total_rate)
            self._before_wait.start(self._send_due)
            # the event loop may already be about to wait
            self._set_timer(0.0)
        else:
            self._before_wait.stop()
            self._timer.turn_off()

    def _send_due(self) -> None:
        """Send the requests that are due, and set the timer for the next one."""
        at, due = now(), self._due
        for _ in range(MAX_SENDS_PER_TURN):
            if due > at:
                break
            self._send(due)
            due += self._random.expovariate(self._total_rate)
        if due != self._due or not self._timer_is_set:
            self._due = due
            self._set_timer(0.0 if due <= at else max(due - now(), self._min_wait))

    def _set_timer(self, seconds: float) -> None:
        self._timer.wake_in(seconds)
        self._timer_is_set = True

    def _on_time(self) -> None:
        """The event loop now calls `_send_due`, which sets the timer again, even if this came too early."""
        self._timer_is_set = False

    def _send(self, due: float) -> None:
        # the sum of equal Poisson processes is one, in which each event belongs to a random one of them
        sources = self._sources
        request = next(sources[0] if len(sources) == 1 else self._random.choice(sources))
        if self._sender.in_flight >= self._max_in_flight:
            self._sender.record_unsent(request, due, self._not_sent)
        else:
            self._sender.launch(request, due)


class ScheduledUser:
    """Has requests sent on the schedule of its process."""

    def __init__(self, schedule: PoissonSchedule, requests: Iterator[PreparedRequest]) -> None:
        self._schedule, self._requests = schedule, requests

    def start(self) -> None:
        self._schedule.add(self._requests)

    def stop(self) -> None:
        self._schedule.remove(self._requests)
