"""Tests of the log: JSON lines, and lines for a terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from service.telemetry import log as logs
from service.telemetry.access_log import access_log


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, restored after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    raises = logging.raiseExceptions
    yield root
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    access_log.configure(None, human=False, min_level=logging.INFO)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def start_logging(
    monkeypatch: pytest.MonkeyPatch, stream: StringIO, level: str = "info", worker: int | None = None
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure_logging(level, worker)


def read_lines(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("root")
def test_a_record_is_a_json_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time, level, logger, message, worker and extra fields, on one line."""
    stream = StringIO()
    start_logging(monkeypatch, stream, worker=3)
    logging.getLogger("service.some").warning(
        "two\nlines of %s", "text", extra={"id": "a1", "path": Path("/x")}
    )
    (line,) = read_lines(stream)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "warning",
        "logger": "service.some",
        "message": "two\nlines of text",
        "worker": 3,
        "id": "a1",
        "path": "/x",
    }


@pytest.mark.usefixtures("root")
def test_a_traceback_is_on_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log collector must not split it into several entries."""
    stream = StringIO()
    start_logging(monkeypatch, stream)
    logging.getLogger("x").error("failed", exc_info=ValueError("oh"))
    (line,) = read_lines(stream)
    assert "worker" not in line
    assert line["traceback"].endswith("ValueError: oh\n")


@pytest.mark.usefixtures("root")
def test_records_below_the_level_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for loggers of the service and of uvicorn, whose own handlers are removed."""
    stream = StringIO()
    start_logging(monkeypatch, stream, "warning")
    for name in ("service.x", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).info("news")
        logging.getLogger(name).error("trouble")
    assert [line["message"] for line in read_lines(stream)] == ["trouble"] * 4


@pytest.mark.usefixtures("root")
def test_a_terminal_gets_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    start_logging(monkeypatch, stream, worker=1)
    logging.getLogger("x").info("all is well")
    logging.getLogger("x").warning("less so")
    lines = stream.getvalue().splitlines()
    assert [line[9:] for line in lines] == ["all is well", "warning: less so"]
    assert not stream.getvalue().startswith("{")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_the_level_applies_to_the_access_log(monkeypatch: pytest.MonkeyPatch, level: str, count: int) -> None:
    written: list[bytes] = []
    monkeypatch.setattr("service.telemetry.access_log.write", written.append)
    monkeypatch.setattr(access_log, "_lines", [])
    monkeypatch.setattr(access_log, "_timer", None)
    start_logging(monkeypatch, StringIO(), level)

    async def main() -> None:
        access_log.add(("127.0.0.1", "GET", "/a", "/a", 200, None, 0), "a", 1)
        access_log.flush()

    asyncio.run(main())
    assert len(written) == count
