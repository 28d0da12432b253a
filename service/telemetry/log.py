"""Logging to stderr: one JSON object per line, or short lines if stderr is a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

# PIPE_BUF of Linux: a pipe takes this many bytes as one piece, so that lines of two workers never mix
MAX_WRITE_BYTES = 4096
# seconds for which the access log collects lines before it writes them
FLUSH_SECONDS = 0.05
# the fields of every log record; all other fields come from `extra` and are written
STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
}
# the levels of access-log lines
LEVEL_NAMES = {logging.DEBUG: "debug", logging.INFO: "info"}


def configure_logging(level: str, worker: int | None = None) -> None:
    """Send this process's log to stderr; every line of a worker carries its number."""
    human = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # a log that cannot be written must not stop the service
    logging.raiseExceptions = False
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    access_log.configure(worker, human=human, min_level=root.level)


class JsonFormatter(logging.Formatter):
    """One JSON object per record, with the fields of its `extra`."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._constant_fields: dict[str, Any] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._constant_fields,
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return to_json_line(line).decode()


class HumanFormatter(logging.Formatter):
    """Time of day, level if above info, and message."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{datetime.now():%H:%M:%S} {level}{record.getMessage()}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


class AccessLogBuffer:
    """Access log: collects the lines of requests and writes them in large pieces, 20 times a second."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._worker: int | None = None
        self._human = False
        self._min_level = logging.INFO

    def configure(self, worker: int | None, *, human: bool, min_level: int) -> None:
        """Set the worker's number, the form of the lines, and the level below which they are dropped."""
        self._worker, self._human, self._min_level = worker, human, min_level

    def add(self, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
        """Add the line of one request: `method`, `path`, `status`, `ms`, and any further fields."""
        if level < self._min_level:
            return
        now = datetime.now(UTC)
        if self._human:
            self._lines.append(
                f"{now.astimezone():%H:%M:%S} {fields.get('method')} {fields.get('path')} "
                f"{fields.get('status')} {fields.get('ms', 0):.1f} ms\n".encode()
            )
        else:
            name = LEVEL_NAMES[level]
            line = {"time": now, "level": name, "logger": "access", "worker": self._worker, **fields}
            self._lines.append(orjson.dumps(line, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write the collected lines. A process calls this last before it ends."""
        lines, self._lines, self._timer = self._lines, [], None
        for chunk in chunks(lines):
            # the service goes on if nobody reads the log any more
            with contextlib.suppress(OSError):
                write(chunk)


access_log = AccessLogBuffer()


def to_json_line(line: dict[str, Any]) -> bytes:
    """Encode a line; values that JSON does not know become strings."""
    return orjson.dumps(line, default=str, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def chunks(lines: list[bytes]) -> list[bytes]:
    """Join lines to chunks of at most MAX_WRITE_BYTES; a longer line is a chunk of its own."""
    joined: list[bytes] = []
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and size + len(line) > MAX_WRITE_BYTES:
            joined.append(b"".join(chunk))
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        joined.append(b"".join(chunk))
    return joined


def write(chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(2, rest) :]
