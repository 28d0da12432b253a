"""Native output: lines that libraries in C print to the standard error of a worker, in the service's log.

onnxruntime warns of devices that it cannot read, and the C library says why it ends a process. Programs that
read the log expect lines of one form. A pipe takes this output to the supervisor, which logs it even if the
worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re

from turnpike.service.telemetry.log_writer import log_writer

log = logging.getLogger(__name__)

STDERR = 2
READ_BYTES = 1 << 16
# a line that is longer and has not ended yet is logged in parts
MAX_LINE_BYTES = 1 << 12
# codes for the colours of a terminal
COLOURS = re.compile(rb"\x1b\[[\d;]*m")


class NativeOutput:
    """The pipe of one worker. The supervisor reads it and the worker, a fork, writes to it."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        # a supervisor that does not run must not stop its workers: what finds no room is lost
        os.set_blocking(self._write_end, False)
        self._prefix, self._rest = "", b""

    def redirect(self) -> None:
        """In the worker: write standard error to the pipe, and the log to where it went before."""
        os.close(self._read_end)
        # otherwise the caller has closed standard error, and its number may be that of another file
        if log_writer.descriptor == STDERR:
            log_writer.descriptor = os.dup(STDERR)
            os.dup2(self._write_end, STDERR)
        os.close(self._write_end)

    def log_lines(self, prefix: str) -> None:
        """In the supervisor: log each line, behind a prefix, until `close`."""
        os.close(self._write_end)
        self._prefix = prefix
        asyncio.get_running_loop().add_reader(self._read_end, self._read)

    def close(self) -> None:
        """Log what is left. A process that the worker started may still have the pipe open."""
        self._read()
        self._log(self._rest)
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)

    def _read(self) -> None:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            # nobody writes any more, which would wake the event loop again and again
            asyncio.get_running_loop().remove_reader(self._read_end)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._log(line)

    def _log(self, line: bytes) -> None:
        if text := COLOURS.sub(b"", line).decode(errors="replace").strip():
            log.warning("%s: %s", self._prefix, text)
