"""What the service writes to stderr: a JSON object a line, or a short line for a person at a terminal."""

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

# a pipe takes so many bytes in one piece, so that the lines of two workers never mix
MAX_WRITE_BYTES = 4096
FLUSH_SECONDS = 0.05
# what every record has; anything else was given by the caller and is written
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def configure_logging(level: str, worker: int | None = None) -> None:
    """Send this process's log to stderr; `worker` stands in every line of a worker's."""
    human = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # a log that cannot be written stops nothing
    logging.raiseExceptions = False
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    access_log.start(worker, human=human, lowest=root.level)


class JsonFormatter(logging.Formatter):
    """One object a record, with whatever `extra` it was given."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._always: dict[str, Any] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return to_json_line(line).decode()


class HumanFormatter(logging.Formatter):
    """The time of day, the level where it is more than news, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{datetime.now():%H:%M:%S} {level}{record.getMessage()}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


class AccessLogBuffer:
    """Lines of requests: put together in memory, and written in a few large pieces twenty times a second."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._worker: int | None = None
        self._human = False
        self._lowest = logging.INFO

    def start(self, worker: int | None, *, human: bool, lowest: int) -> None:
        """Say in each line whose it is, and write none below the lowest level."""
        self._worker, self._human, self._lowest = worker, human, lowest

    def add(self, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
        """Add the line of one request: `method`, `path`, `status`, `ms`, and whatever else is known of it."""
        if level < self._lowest:
            return
        now = datetime.now(UTC)
        if self._human:
            self._waiting.append(
                f"{now.astimezone():%H:%M:%S} {fields.get('method')} {fields.get('path')} "
                f"{fields.get('status')} {fields.get('ms', 0):.1f} ms\n".encode()
            )
        else:
            name = logging.getLevelName(level).lower()
            line = {"time": now, "level": name, "logger": "access", "worker": self._worker, **fields}
            self._waiting.append(to_json_line(line) + b"\n")
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is waiting; whoever ends a process calls it last."""
        waiting, self._waiting, self._timer = self._waiting, [], None
        for piece in chunks(waiting):
            # where nobody reads the log any more, the service goes on
            with contextlib.suppress(OSError):
                write(piece)


access_log = AccessLogBuffer()


def to_json_line(line: dict[str, Any]) -> bytes:
    """The line as JSON, whatever was put into it."""
    return orjson.dumps(line, default=str, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def chunks(waiting: list[bytes]) -> list[bytes]:
    """The lines in as few pieces of at most PIECE bytes as may be; a longer line is a piece of its own."""
    found: list[bytes] = []
    size = MAX_WRITE_BYTES
    piece: list[bytes] = []
    for line in waiting:
        if size + len(line) > MAX_WRITE_BYTES and piece:
            found.append(b"".join(piece))
            piece, size = [], 0
        elif not piece:
            size = 0
        piece.append(line)
        size += len(line)
    if piece:
        found.append(b"".join(piece))
    return found


def write(piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(2, left) :]
