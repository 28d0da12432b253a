"""Closed loop: each user sends a request when its last one has been answered."""

from __future__ import annotations

from collections.abc import Iterator

from turnpike.loadtest.generate.sender import PreparedRequest, Sender


class ClosedLoopUser:
    """Sends a request when the last one has its outcome."""

    def __init__(self, sender: Sender, requests: Iterator[PreparedRequest]) -> None:
        self._sender, self._requests = sender, requests
        self._stopped = False

    def start(self) -> None:
        self._send_next()

    def stop(self) -> None:
        """Send nothing more; the outcome of a request in flight still counts."""
        self._stopped = True

    def _send_next(self) -> None:
        if not self._stopped:
            self._sender.launch(next(self._requests), on_end=self._send_next)
