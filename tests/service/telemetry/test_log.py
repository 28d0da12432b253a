"""The log: a JSON object a line, a short line for a person, and lines of requests in a few writes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from service.telemetry import log as logs
from service.telemetry.log import AccessLogBuffer, chunks


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    raises = logging.raiseExceptions
    yield root
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    logs.access_log.configure(None, human=False, min_level=logging.INFO)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to stderr, piece by piece; what other tests left unwritten is not."""
    found: list[bytes] = []
    monkeypatch.setattr(logs.access_log, "_lines", [])
    monkeypatch.setattr(logs.access_log, "_timer", None)

    def write(descriptor: int, data: memoryview) -> int:
        assert descriptor == 2
        found.append(bytes(data))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    return found


def started(
    monkeypatch: pytest.MonkeyPatch, stream: StringIO, level: str = "info", worker: int | None = None
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure_logging(level, worker)


def said(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.usefixtures("root")
def test_a_record_is_a_json_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """When, how bad, whose, what, and whatever else was given, on one line."""
    stream = StringIO()
    started(monkeypatch, stream, worker=3)
    logging.getLogger("service.some").warning(
        "two\nlines of %s", "text", extra={"id": "a1", "path": Path("/x")}
    )
    (line,) = said(stream)
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
def test_a_traceback_stays_on_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one field, so that no collector tears it apart."""
    stream = StringIO()
    started(monkeypatch, stream)
    logging.getLogger("x").error("failed", exc_info=ValueError("oh"))
    (line,) = said(stream)
    assert "worker" not in line
    assert line["traceback"].endswith("ValueError: oh\n")


@pytest.mark.usefixtures("root")
def test_what_is_below_the_level_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ours and of uvicorn's, which has no handlers of its own any more."""
    stream = StringIO()
    started(monkeypatch, stream, "warning")
    for name in ("service.x", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).info("news")
        logging.getLogger(name).error("trouble")
    assert [line["message"] for line in said(stream)] == ["trouble"] * 4


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_lines_of_requests_are_news(
    monkeypatch: pytest.MonkeyPatch, written: list[bytes], level: str, count: int
) -> None:
    """Whoever wants to hear of trouble alone is not told of every request."""
    started(monkeypatch, StringIO(), level)

    async def scene() -> None:
        logs.access_log.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        logs.access_log.flush()

    asyncio.run(scene())
    assert len(written) == count


@pytest.mark.usefixtures("root")
def test_a_line_has_its_level(monkeypatch: pytest.MonkeyPatch, written: list[bytes]) -> None:
    """One of little interest is written only where everything is."""

    async def scene() -> None:
        for level in ("info", "debug"):
            started(monkeypatch, StringIO(), level)
            logs.access_log.add({"path": f"/{level}"}, logging.DEBUG)
        logs.access_log.flush()

    asyncio.run(scene())
    (line,) = (json.loads(line) for line in b"".join(written).splitlines())
    assert (line["level"], line["path"]) == ("debug", "/debug")


@pytest.mark.usefixtures("root")
def test_a_person_gets_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: time and message, and the level where it is more than news."""
    stream = Terminal()
    started(monkeypatch, stream, worker=1)
    logging.getLogger("x").info("all is well")
    logging.getLogger("x").warning("less so")
    lines = stream.getvalue().splitlines()
    assert [line[9:] for line in lines] == ["all is well", "warning: less so"]
    assert not stream.getvalue().startswith("{")


def test_lines_of_requests_wait_for_each_other(written: list[bytes]) -> None:
    """Many requests are one write, which comes by itself a moment later."""

    async def scene() -> None:
        lines = AccessLogBuffer()
        lines.configure(2, human=False, min_level=logging.INFO)
        for number in range(10):
            lines.add({"method": "GET", "path": f"/{number}", "status": 200, "ms": 0.5})
        assert written == []
        async with asyncio.timeout(5):
            while not written:
                await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert len(written) == 1
    first, *rest = (json.loads(line) for line in written[0].splitlines())
    assert len(rest) == 9
    assert (first["logger"], first["worker"], first["path"], first["status"]) == ("access", 2, "/0", 200)


def test_a_flush_writes_what_is_left(written: list[bytes]) -> None:
    """At the end of a process nothing is missing, and nothing comes twice."""

    async def scene() -> None:
        lines = AccessLogBuffer()
        lines.configure(None, human=True, min_level=logging.INFO)
        lines.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        lines.flush()
        lines.flush()
        lines.add({"method": "GET", "path": "/b", "status": 200, "ms": 0.5})
        lines.flush()

    asyncio.run(scene())
    assert [piece[9:] for piece in written] == [b"GET /a 200 0.5 ms\n", b"GET /b 200 0.5 ms\n"]


def test_a_log_that_nobody_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken pipe is no reason to answer no requests."""

    def broken(descriptor: int, data: memoryview) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", broken)

    async def scene() -> None:
        lines = AccessLogBuffer()
        lines.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        lines.flush()

    asyncio.run(scene())


@pytest.mark.parametrize(
    "sizes", [[], [1], [5000], [100] * 200, [4096, 1, 4096], [5000, 10, 10], [10, 5000, 10]]
)
def test_pieces_hold_whole_lines(sizes: list[int]) -> None:
    """None is longer than a pipe takes at once, but for one line that is by itself; nothing is lost."""
    waiting = [b"%d" % (number % 10) * (size - 1) + b"\n" for number, size in enumerate(sizes)]
    found = chunks(waiting)
    assert b"".join(found) == b"".join(waiting)
    for piece in found:
        assert piece.endswith(b"\n")
        assert len(piece) <= 4096 or piece.count(b"\n") == 1
    for one, other in pairwise(found):
        assert len(one) + len(other.splitlines(keepends=True)[0]) > 4096
