"""Runs turnpike commands as child processes, and ends them when the user stops the search."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import IO, Self

from turnpike.tune.errors import StoppedError

# -P, because the current folder may hold another turnpike
TURNPIKE = ("-P", "-m", "turnpike")
# seconds between checks of a running process
POLL_SECONDS = 0.1
# seconds that a process may take to end before it is killed
STOP_SECONDS = 10.0
# the newest bytes of standard error that are kept
MAX_STDERR_BYTES = 16 * 1024
_ERROR = re.compile(r"^error: (.*)", re.MULTILINE)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# returns True once the user wants the search to stop
StopRequested = Callable[[], bool]


@contextmanager
def interruptible() -> Iterator[StopRequested]:
    """Yield a function that returns True once a signal has arrived; signals do nothing else in the block.

    So processes end only where `ChildProcess` ends them.
    """
    stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    previous = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield lambda: stopping
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def turnpike_command(*arguments: str) -> list[str]:
    """The command line of a turnpike command."""
    return [sys.executable, *TURNPIKE, *arguments]


class ChildProcess:
    """A running command. The end of its block ends it, and all processes that it started.

    It has a session of its own, so Ctrl-C at a terminal reaches only this process, which then ends the
    others.
    """

    def __init__(self, command: Sequence[str], stop_requested: StopRequested) -> None:
        self._command, self._stop_requested = command, stop_requested
        self._stderr = b""

    def __enter__(self) -> Self:
        # safe: the commands are our own, and no shell reads the arguments
        self._process = subprocess.Popen(  # noqa: S603
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._reader.join(STOP_SECONDS)

    @property
    def stderr_text(self) -> str:
        """The newest part of standard error."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    @property
    def error_text(self) -> str:
        """The error message with which it ended."""
        errors = _ERROR.findall(self.stderr_text)
        return errors[-1] if errors else f"it ended with status {self.status} and no error message"

    def poll(self) -> Iterator[None]:
        """Yield repeatedly while the process runs; raises a StoppedError if the user stops the search."""
        while self._process.poll() is None:
            if self._stop_requested():
                raise StoppedError("stopped")
            yield
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_SECONDS)
        # until standard error is read to its end
        self._reader.join(STOP_SECONDS)

    def wait(self) -> int:
        """Wait until the process ends; returns its exit status."""
        for _ in self.poll():
            pass
        return self._process.wait()

    def _read(self, pipe: IO[bytes]) -> None:
        # a server logs a line per request: reading at once keeps it from waiting for a full pipe
        with pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]
