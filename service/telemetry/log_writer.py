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
import stat
import sys
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger(__name__)

# PIPE_BUF of Linux: a pipe takes this many bytes as one piece, so that processes never mix their lines
PIPE_BYTES = 4096
# A file takes any number. Each write hands the interpreter's lock to another thread and back, which takes as
# long as formatting twenty lines.
FILE_BYTES = 1 << 18
# seconds for which lines of requests are collected before they are written
COLLECT_SECONDS = 0.05
# Bytes of lines that wait to be written: those of some 14,000 requests. The log's other lines get some more,
# so that a process can still say what happened after requests have filled the buffer.
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

    def add(self, lines: bytes) -> None:
        """Add lines of requests, with their line ends."""
        size = len(lines)
        if self._overflowing or self._added_bytes - self._written_bytes + size > self._max_waiting_bytes:
            self._overflowing = True
            count = lines.count(b"\n")
            self.dropped += count
            return
        self._added_bytes += size
        self._lines.put(lines)
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
        lines = self._take_lines()
        for piece in pieces(lines, FILE_BYTES if _is_file(self.descriptor) else PIPE_BYTES):
            writable = self._write(piece)
            if not writable:
                count = bytes(piece).count(b"\n")
                self.dropped += count
            self._written_bytes += len(piece)
        self._end_overflow(writable)

    def _take_lines(self) -> bytes:
        """Wait for lines, of which those of requests are collected for a moment, and take them."""
        lines = [self._lines.get()]
        self._taken_bytes += len(lines[0])
        with contextlib.suppress(Empty):
            self._urgent.get(timeout=COLLECT_SECONDS)
        for _ in range(self._lines.qsize()):
            lines.append(self._lines.get())
            self._taken_bytes += len(lines[-1])
        return b"".join(lines)

    def _write(self, rest: memoryview) -> bool:
        """Write all of the rest, however long that takes. Returns False if it cannot be written."""
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


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        # it was closed, which the next write notices
        return False


def pieces(lines: bytes, max_bytes: int) -> Iterator[memoryview]:
    """Cut lines into pieces of at most `max_bytes`, at line ends. A longer line is a piece of its own."""
    view, start = memoryview(lines), 0
    while start < len(lines):
        stop = lines.rfind(b"\n", start, start + max_bytes) + 1 or lines.find(b"\n", start) + 1
        stop = stop or len(lines)
        yield view[start:stop]
        start = stop


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
