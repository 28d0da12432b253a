"""Tests of the log: JSON lines, lines for a terminal, and the access log."""

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
    """The root logger, restored after the test."""
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
    """What is written to stderr, chunk by chunk, without leftovers of other tests."""
    chunks_written: list[bytes] = []
    monkeypatch.setattr(logs.access_log, "_lines", [])
    monkeypatch.setattr(logs.access_log, "_timer", None)

    def write(descriptor: int, data: memoryview) -> int:
        assert descriptor == 2
        chunks_written.append(bytes(data))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    return chunks_written


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
@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("info", 1), ("warning", 0), ("error", 0)])
def test_the_access_log_has_level_info(
    monkeypatch: pytest.MonkeyPatch, written: list[bytes], level: str, count: int
) -> None:
    start_logging(monkeypatch, StringIO(), level)

    async def main() -> None:
        logs.access_log.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        logs.access_log.flush()

    asyncio.run(main())
    assert len(written) == count


@pytest.mark.usefixtures("root")
def test_debug_lines_need_level_debug(monkeypatch: pytest.MonkeyPatch, written: list[bytes]) -> None:
    async def main() -> None:
        for level in ("info", "debug"):
            start_logging(monkeypatch, StringIO(), level)
            logs.access_log.add({"path": f"/{level}"}, logging.DEBUG)
        logs.access_log.flush()

    asyncio.run(main())
    (line,) = (json.loads(line) for line in b"".join(written).splitlines())
    assert (line["level"], line["path"]) == ("debug", "/debug")


@pytest.mark.usefixtures("root")
def test_a_terminal_gets_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    start_logging(monkeypatch, stream, worker=1)
    logging.getLogger("x").info("all is well")
    logging.getLogger("x").warning("less so")
    lines = stream.getvalue().splitlines()
    assert [line[9:] for line in lines] == ["all is well", "warning: less so"]
    assert not stream.getvalue().startswith("{")


def test_access_log_lines_are_written_in_batches(written: list[bytes]) -> None:
    """Lines of many requests are written together after a moment."""

    async def main() -> None:
        lines = AccessLogBuffer()
        lines.configure(2, human=False, min_level=logging.INFO)
        for number in range(10):
            lines.add({"method": "GET", "path": f"/{number}", "status": 200, "ms": 0.5})
        assert written == []
        async with asyncio.timeout(5):
            while not written:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(written) == 1
    first, *rest = (json.loads(line) for line in written[0].splitlines())
    assert len(rest) == 9
    assert (first["logger"], first["worker"], first["path"], first["status"]) == ("access", 2, "/0", 200)


def test_a_flush_writes_the_remaining_lines(written: list[bytes]) -> None:

    async def main() -> None:
        lines = AccessLogBuffer()
        lines.configure(None, human=True, min_level=logging.INFO)
        lines.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        lines.flush()
        lines.flush()
        lines.add({"method": "GET", "path": "/b", "status": 200, "ms": 0.5})
        lines.flush()

    asyncio.run(main())
    assert [chunk[9:] for chunk in written] == [b"GET /a 200 0.5 ms\n", b"GET /b 200 0.5 ms\n"]


def test_a_broken_pipe_does_not_stop_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, data: memoryview) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", broken)

    async def main() -> None:
        lines = AccessLogBuffer()
        lines.add({"method": "GET", "path": "/a", "status": 200, "ms": 0.5})
        lines.flush()

    asyncio.run(main())


@pytest.mark.parametrize(
    "sizes", [[], [1], [5000], [100] * 200, [4096, 1, 4096], [5000, 10, 10], [10, 5000, 10]]
)
def test_chunks_have_whole_lines(sizes: list[int]) -> None:
    """No chunk exceeds PIPE_BUF unless it is a single line; nothing is lost."""
    waiting = [b"%d" % (number % 10) * (size - 1) + b"\n" for number, size in enumerate(sizes)]
    chunks_written = chunks(waiting)
    assert b"".join(chunks_written) == b"".join(waiting)
    for chunk in chunks_written:
        assert chunk.endswith(b"\n")
        assert len(chunk) <= 4096 or chunk.count(b"\n") == 1
    for one, other in pairwise(chunks_written):
        assert len(one) + len(other.splitlines(keepends=True)[0]) > 4096
