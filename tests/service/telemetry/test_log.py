"""Tests of the log: JSON lines, and lines for a terminal."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from turnpike.service.telemetry import log as logs
from turnpike.service.telemetry.access_log import access_log
from turnpike.service.telemetry.log import TERMINAL_LINES
from turnpike.service.telemetry.log_writer import log_writer


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger, restored after the test, as is `sys.stderr`."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    raises = logging.raiseExceptions
    yield root
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    access_log.configure(None, human=False, min_level=logging.INFO)


def read_lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert log_writer.flush(5)
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


@pytest.mark.usefixtures("root")
def test_a_record_is_a_json_object(capfd: pytest.CaptureFixture[str]) -> None:
    """Time, level, logger, message, worker and extra fields, on one line."""
    logs.configure_logging("info", 3)
    logging.getLogger("service.some").warning(
        "two\nlines of %s", "text", extra={"id": "a1", "path": Path("/x")}
    )
    (line,) = read_lines(capfd)
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
def test_a_traceback_is_on_the_same_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A log collector must not split it into several entries."""
    logs.configure_logging("info")
    logging.getLogger("x").error("failed", exc_info=ValueError("oh"))
    (line,) = read_lines(capfd)
    assert "worker" not in line
    assert line["traceback"].endswith("ValueError: oh\n")


@pytest.mark.usefixtures("root")
def test_records_below_the_level_are_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    """This holds for loggers of the service and of uvicorn, whose own handlers are removed."""
    logs.configure_logging("warning")
    for name in ("service.x", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).info("news")
        logging.getLogger(name).error("trouble")
    assert [line["message"] for line in read_lines(capfd)] == ["trouble"] * 4


@pytest.mark.usefixtures("root")
def test_a_terminal_gets_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    monkeypatch.setattr(log_writer, "descriptor", terminal)
    logs.configure_logging("info", 1)
    logging.getLogger("x").info("all is well", extra={TERMINAL_LINES: ["and here", "and there"]})
    logging.getLogger("x").warning("less so")
    access_log.add([(("127.0.0.1", "GET", "/a", "/a", 200, None, 0), "a", 500_000, None, None)])
    assert log_writer.flush(5)
    lines = os.read(controller, 4096).decode().splitlines()
    os.close(controller)
    os.close(terminal)
    assert lines[1:3] == ["  and here", "  and there"]
    assert [line[9:] for line in lines if line[0] != " "] == [
        "all is well",
        "warning: less so",
        "GET /a 200 0.5 ms",
    ]


@pytest.mark.usefixtures("root")
def test_lines_for_people_are_not_in_json(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info")
    logging.getLogger("x").info("all is well", extra={TERMINAL_LINES: ["and here"]})
    (line,) = read_lines(capfd)
    assert line.keys() == {"time", "level", "logger", "message"}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_the_level_applies_to_the_access_log(
    capfd: pytest.CaptureFixture[str], level: str, count: int
) -> None:
    logs.configure_logging(level)
    access_log.add([(("127.0.0.1", "GET", "/a", "/a", 200, None, 0), "a", 1, None, None)])
    assert len(read_lines(capfd)) == count
