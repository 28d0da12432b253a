"""Logging to stderr: one JSON object per line, or short lines if stderr is a terminal."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson

from turnpike.service.telemetry.access_log import access_log
from turnpike.service.telemetry.log_writer import unblock_stderr

# key of `extra`: more lines of a message, only for people at a terminal
TERMINAL_LINES = "terminal_lines"
# the fields of every log record; all other fields come from `extra` and are written
STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    TERMINAL_LINES,
    "message",
    "asctime",
    "color_message",
    "taskName",
}


def configure_logging(level: str, worker: int | None = None) -> None:
    """Send this process's log to stderr; every line of a worker carries its number."""
    unblock_stderr()
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
    """Time of day, level if above info, and message, with further lines if it has some."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        message = "\n  ".join((record.getMessage(), *getattr(record, TERMINAL_LINES, ())))
        line = f"{datetime.now():%H:%M:%S} {level}{message}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def to_json_line(line: dict[str, Any]) -> bytes:
    """Encode a line; values that JSON does not know become strings."""
    return orjson.dumps(line, default=str, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)
