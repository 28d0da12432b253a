"""Writes the log to standard error from a thread, so that a reader that stops reading stops nothing else.

A write to a full pipe or a stopped terminal waits, and O_NONBLOCK is no remedy: other processes that have the
same pipe or terminal open would get the flag, too.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger(__name__)

# PIPE_BUF of Linux: a pipe takes this many bytes as one piece, so that processes never mix their lines
MAX_WRITE_BYTES = 4096
# seconds for which lines of requests are collected before they are written
COLLECT_SECONDS = 0.05
# Bytes of lines that wait to be written: those of 1.5 seconds at 8,000 requests per second. The log's other
# lines get some more, so that a process can still say what happened after requests have filled the buffer.
MAX_WAITING_BYTES = 4 << 20
RESERVED_BYTES = 1 << 18
# how long a process that ends waits for a reader that does not read
END_SECONDS = 1.0


class LogWriter:
    """Writes lines in the order in which they come, and drops and counts those that find no room.

    A line starts the thread if `start` has not, and again in a forked process. The numbers are kept without a
    lock, for which an event loop could have to wait: in CPython no other thread runs within `+=` on a number,
    if nothing is called to its right.
    """

    def __init__(self, descriptor: int, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self.descriptor = descriptor
        self._max_waiting_bytes = max_waiting_bytes
        self.reset()

    def reset(self) -> None:
        """Start empty. A forked process has no thread, and its parent writes the lines that were waiting."""
        # its `put` may be interrupted by a garbage collection that logs something, and never waits
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        # has an item if lines should be written without collecting more
        self._urgent: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        # set whenever the thread has written all that it took
        self._wrote = threading.Event()
        self._added_bytes = self._taken_bytes = self._written_bytes = 0
        # set when a line of a request finds no room, until half of the buffer is free
        self._overflowing = False
        self.dropped = self._reported = 0

    def add(self, line: bytes) -> None:
        """Add the line of a request, with its line end."""
        size = len(line)
        if self._overflowing or self._added_bytes - self._written_bytes + size > self._max_waiting_bytes:
            self._overflowing = True
            self.dropped += 1
            return
        self._added_bytes += size
        self._lines.put(line)
        if self._thread is None:
            self.start()

    def add_now(self, line: bytes) -> None:
        """Add any other line, which is written at once."""
        size = len(line)
        if self._added_bytes - self._written_bytes + size > self._max_waiting_bytes + RESERVED_BYTES:
            self.dropped += 1
            return
        self._added_bytes += size
        self._lines.put(line)
        self._hurry()
        if self._thread is None:
            self.start()

    def start(self) -> None:
        """Start the thread, with the priority of the thread that calls this."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:
                    # the system has no more threads; the next line tries again
                    self._thread = None

    def flush(self, seconds: float = END_SECONDS) -> bool:
        """Wait until all lines are written, at most this long. Returns whether they are."""
        deadline = time.monotonic() + seconds
        self._hurry()
        while True:
            self._wrote.clear()
            if self._written_bytes >= self._added_bytes:
                return True
            if not self._wrote.wait(max(0.0, deadline - time.monotonic())):
                return False

    def _hurry(self) -> None:
        if self._urgent.empty():
            self._urgent.put(None)

    def _run(self) -> None:
        while True:
            try:
                self._write_lines()
            except MemoryError:
                # the lines that it had taken are lost, and count as one
                self.dropped += 1
                self._written_bytes = self._taken_bytes
            self._wrote.set()

    def _write_lines(self) -> None:
        writable = True
        for piece in pieces(self._take_lines()):
            data = b"".join(piece)
            writable = self._write(data)
            if not writable:
                count = len(piece)
                self.dropped += count
            self._written_bytes += len(data)
        self._end_overflow(writable)

    def _take_lines(self) -> Iterator[bytes]:
        """Wait for lines, of which those of requests are collected for a moment, and yield them."""
        line = self._lines.get()
        with contextlib.suppress(Empty):
            self._urgent.get(timeout=COLLECT_SECONDS)
        for _ in range(self._lines.qsize()):
            self._taken_bytes += len(line)
            yield line
            line = self._lines.get()
        self._taken_bytes += len(line)
        yield line

    def _write(self, data: bytes) -> bool:
        """Write all of the data, however long that takes. Returns False if it cannot be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except BlockingIOError:
                # another process has set O_NONBLOCK
                poll = select.poll()
                poll.register(self.descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return False
        return True

    def _end_overflow(self, writable: bool) -> None:
        """Accept lines again once there is room; then log how many were dropped, if lines can be written."""
        if self._added_bytes - self._written_bytes <= self._max_waiting_bytes // 2:
            self._overflowing = False
        if writable and not self._overflowing and (count := self.dropped - self._reported):
            self._reported += count
            log.warning("%d lines of the log were dropped, since they could not be written in time", count)


def pieces(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group lines into pieces of at most MAX_WRITE_BYTES. A longer line is a piece of its own."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line)
        if size > MAX_WRITE_BYTES and piece:
            yield piece
            piece, size = [], len(line)
        piece.append(line)
    if piece:
        yield piece


class LogStream(io.RawIOBase):
    """Standard error as a file whose lines go to a log writer."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def write(self, data: Any) -> int:
        self._writer.add_now(bytes(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._writer.descriptor

    def isatty(self) -> bool:
        return os.isatty(self._writer.descriptor)


# If the caller closed standard error, the log must not go to a file or connection that has got its number.
log_writer = LogWriter(os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else 2)
os.register_at_fork(after_in_child=log_writer.reset)


def unblock_stderr() -> None:
    """Have the log writer write whatever goes to `sys.stderr`: the log, warnings and tracebacks."""
    log_writer.start()
    sys.stderr = io.TextIOWrapper(
        LogStream(log_writer), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


@atexit.register
def _write_the_rest() -> None:
    """Write what is left. The interpreter writes its own last messages to standard error directly."""
    if isinstance(getattr(sys.stderr, "buffer", None), LogStream):
        sys.stderr.flush()
        sys.stderr = sys.__stderr__
    if not log_writer.flush():
        # nobody reads them, and a write would wait for ever
        os.dup2(os.open(os.devnull, os.O_WRONLY), log_writer.descriptor)
