"""How long a client has read nothing of its answers."""

from __future__ import annotations

import asyncio


class UnreadOutput:
    """Looks at the output that a transport holds, about once a second."""

    __slots__ = ("_bytes", "_unchanged_since")

    def __init__(self) -> None:
        # bytes that the client has not read, and the event-loop time at which this number last changed
        self._bytes = 0
        self._unchanged_since = 0.0

    def seconds(self, transport: asyncio.WriteTransport, now: float) -> float:
        """Seconds for which the client has read nothing; 0 if there is nothing to read."""
        size = transport.get_write_buffer_size()
        if size == 0 or size != self._bytes:
            self._bytes, self._unchanged_since = size, now
        return now - self._unchanged_since
