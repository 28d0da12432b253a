"""The open loop: requests that leave on schedule, whether or not earlier ones were answered."""

from __future__ import annotations

import random
from collections.abc import Iterator

import gevent
from gevent.event import Event

from loadtest.generate.alarm import Alarm
from loadtest.generate.sender import Sender, Shot, now

# requests of one process that are waited for at one time
MOST = 2000
NOT_SENT = f"not sent: {MOST} in flight"
# a rate that changes is followed at the latest after so many seconds
LONGEST = 0.05


class Schedule:
    """Requests at random times, as from many clients that know nothing of each other (a Poisson process).

    Latency counts from the time a request was due, so a stall of the server, or of this process, is seen in
    every request that it held up.
    """

    def __init__(self, sender: Sender, shots: Iterator[Shot], seed: str) -> None:
        self._sender = sender
        self._shots = shots
        self._random = random.Random(seed)  # noqa: S311
        self._rate = 0.0
        self._due = 0.0
        self._ended = False
        self._changed = Event()

    @property
    def rate(self) -> float:
        """Requests a second; 0 for none."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if rate == self._rate:
            return
        self._rate = rate
        # what was due at the old rate is drawn anew, which leaves a Poisson process what it is
        self._due = now() + self._gap() if rate else 0.0
        self._changed.set()

    def run(self) -> None:
        """Send until told to end."""
        alarm = Alarm()
        try:
            while not self._ended:
                gevent.sleep(0)  # when behind, what was launched and what was answered has its turn, too
                if not self._rate:
                    self._changed.clear()
                    self._changed.wait()
                elif (left := self._due - now()) > 0:
                    alarm.sleep(min(left, LONGEST))
                else:
                    self._leave(self._due)
                    self._due += self._gap()
        finally:
            alarm.close()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    def _leave(self, due: float) -> None:
        shot = next(self._shots)
        if self._sender.in_flight >= MOST:
            self._sender.refuse(shot, due, NOT_SENT)
        else:
            self._sender.launch(shot, due)

    def _gap(self) -> float:
        return self._random.expovariate(self._rate)
