"""Heartbeat: notices that a worker's event loop does not answer, for example because it is stuck or stopped.

The supervisor sends a beat, and the next one after the worker's answer. It counts how often it has waited for
the answer, and reads no clock: while the supervisor itself is stopped or the machine is suspended, no worker
becomes silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from turnpike.service.process.ipc import IpcChannel

# Pause between two beats, and time of one wait for an answer. With a limit on the silence that is small, a
# tenth of it.
BEAT_SECONDS = 1.0
# After this silence nothing waits for the worker any more. With a small limit, a quarter of it. The longest
# work in an event loop is decoding JSON: 1.3 s for the worst body that the default limits allow.
SILENT_SECONDS = 5.0
# A worker has ten times the limit to start: on a busy machine with cold files, its imports take many seconds.
START_FACTOR = 10


class Heartbeat:
    """The beats of one worker.

    Args:
        channel: Leads to the worker, which answers the notification "beat" with another one.
        limit: Seconds of silence after which `run` returns; 0 for never.
        on_silence: Called when the worker has become silent.
    """

    def __init__(self, channel: IpcChannel, limit: float, on_silence: Callable[[], None]) -> None:
        self.limit = limit
        # how long the worker has been silent; 0 if it answers
        self.seconds = 0.0
        # exactly one of the two is set
        self.silent, self.answering = asyncio.Event(), asyncio.Event()
        self.answering.set()
        self._wait_seconds = min(BEAT_SECONDS, limit / 10) if limit else BEAT_SECONDS
        self._silent_seconds = min(SILENT_SECONDS, limit / 4) if limit else SILENT_SECONDS
        self._on_silence = on_silence
        self._channel = channel
        self._answered = asyncio.Event()
        channel.handlers["beat"] = self._on_beat

    async def run(self, up: asyncio.Event) -> None:
        """Watch the worker until it has been silent for too long. `up` is set when it has started."""
        async for seconds in self._waits(up):
            if self.limit and seconds >= START_FACTOR * self.limit:
                return
        while True:
            self._answered.clear()
            self._channel.notify("beat")
            async for seconds in self._waits(self._answered):
                self.seconds = seconds
                if seconds >= self._silent_seconds:
                    self._become_silent()
                if self.limit and seconds >= self.limit:
                    return
            self.seconds = 0.0
            self.silent.clear()
            self.answering.set()
            await asyncio.sleep(self._wait_seconds)

    async def _waits(self, event: asyncio.Event) -> AsyncIterator[float]:
        """Wait for an event, and yield the seconds spent so far after each wait that was in vain."""
        count = 0
        while not event.is_set():
            try:
                # not `wait_for`, which in Python 3.11 may ignore that this task is cancelled
                async with asyncio.timeout(self._wait_seconds):
                    await event.wait()
            except TimeoutError:
                count += 1
                yield count * self._wait_seconds

    def _become_silent(self) -> None:
        if not self.silent.is_set():
            self.silent.set()
            self.answering.clear()
            self._on_silence()

    async def _on_beat(self, _: Any) -> None:
        self._answered.set()
