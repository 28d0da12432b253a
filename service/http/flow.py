"""How fast a client is read from, and whether it reads."""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from collections.abc import Sized

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Reads nothing while requests wait that were read, so that a client cannot fill the memory with them."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting
        # bytes of answers that the client has not taken, and since when there are as many
        self._unsent = 0
        self._since = 0.0

    def resume_reading(self) -> None:
        """Read again, unless a request waits."""
        if not self._waiting:
            super().resume_reading()

    def stuck(self, now: float) -> float:
        """For how many seconds the client has taken nothing of its answer."""
        unsent = self._transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent:
            self._unsent, self._since = unsent, now
        return now - self._since

    def unread(self) -> bool:
        """Whether something has come that was not read yet."""
        size = array.array("i", [0])
        fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
        return bool(size[0])
