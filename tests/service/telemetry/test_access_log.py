"""Tests of the access log: its lines, and how they are written."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from service.inference_types import InferenceResult
from service.telemetry.access_log import AccessLog, Labels, chunks


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to stderr, chunk by chunk."""
    chunks_written: list[bytes] = []

    def write(descriptor: int, data: memoryview) -> int:
        assert descriptor == 2
        chunks_written.append(bytes(data))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    return chunks_written


def labels(path: str = "/a", status: int = 200, route: str = "/{file}", model: str | None = None) -> Labels:
    return "127.0.0.1", "GET", path, route, status, model, 3


def access_log(worker: int | None = None, *, human: bool = False, min_level: int = logging.INFO) -> AccessLog:
    access_log = AccessLog()
    access_log.configure(worker, human=human, min_level=min_level)
    return access_log


def lines_of(written: list[bytes], log: AccessLog, *entries: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The parsed lines of entries, each of which has the arguments of `AccessLog.add`."""

    async def main() -> None:
        for entry in entries:
            log.add(*entry)
        log.flush()

    asyncio.run(main())
    return [json.loads(line) for line in b"".join(written).splitlines()]


def test_a_line_has_all_fields(written: list[bytes]) -> None:
    result = InferenceResult((), queue_ns=1_500_000, run_ns=2_500_900, batch_rows=4)
    (line,) = lines_of(
        written, access_log(2), (labels(model="digits"), 'an "id"', 123_456_789, result, {"error": "no\nway"})
    )
    written_at = datetime.fromisoformat(line.pop("time"))
    assert timedelta(0) <= datetime.now(UTC) - written_at < timedelta(minutes=1)
    assert line == {
        "level": "info",
        "logger": "access",
        "worker": 2,
        "client": "127.0.0.1",
        "method": "GET",
        "path": "/a",
        "route": "/{file}",
        "status": 200,
        "model": "digits/3",
        "id": 'an "id"',
        "ms": 123.457,
        "queue_ms": 1.5,
        "run_ms": 2.501,
        "batch": 4,
        "error": "no\nway",
    }


def test_a_line_without_a_run_names_no_model(written: list[bytes]) -> None:
    (line,) = lines_of(written, access_log(), (labels(), "a", 1_000_000))
    assert line["ms"] == 1
    assert not line.keys() & {"model", "queue_ms", "run_ms", "batch", "error"}


def test_times_grow_from_line_to_line(written: list[bytes]) -> None:
    """The time is that of the line, although the labels are rendered only once."""
    log = access_log()

    async def main() -> None:
        for _ in range(3):
            log.add(labels(), "a", 1)
            await asyncio.sleep(0.4)
        log.flush()

    asyncio.run(main())
    times = [datetime.fromisoformat(json.loads(line)["time"]) for line in b"".join(written).splitlines()]
    assert all(timedelta(seconds=0.3) < later - earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("level", "paths"),
    [("DEBUG", ["/a", "/ready", "/failed"]), ("INFO", ["/a", "/failed"]), ("WARNING", [])],
)
def test_successful_probes_are_logged_at_debug(written: list[bytes], level: str, paths: list[str]) -> None:
    log = access_log(min_level=logging.getLevelNamesMapping()[level])
    probe = "/v2/health/ready"
    entries = [labels(), labels("/ready", route=probe), labels("/failed", 503, probe)]
    lines = lines_of(written, log, *((entry, "a", 1) for entry in entries))
    assert [line["path"] for line in lines] == paths


def test_configuring_applies_to_labels_that_were_rendered_before(written: list[bytes]) -> None:
    log = access_log(1)
    lines_of(written, log, (labels(), "a", 1))
    log.configure(2, human=False, min_level=logging.INFO)
    assert [line["worker"] for line in lines_of(written, log, (labels(), "a", 1))] == [1, 2]


def test_lines_are_written_in_batches(written: list[bytes]) -> None:
    """The lines of many requests are written at once, after a moment."""

    async def main() -> None:
        log = access_log()
        for number in range(10):
            log.add(labels(f"/{number}"), "a", 500_000)
        assert written == []
        async with asyncio.timeout(5):
            while not written:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(written) == 1
    assert [json.loads(line)["path"] for line in written[0].splitlines()] == [f"/{n}" for n in range(10)]


def test_a_flush_writes_the_remaining_lines(written: list[bytes]) -> None:
    async def main() -> None:
        log = access_log(human=True)
        log.add(labels("/a"), "a", 500_000)
        log.flush()
        log.flush()
        log.add(labels("/b"), "b", 500_000)
        log.flush()

    asyncio.run(main())
    assert [chunk[9:] for chunk in written] == [b"GET /a 200 0.5 ms\n", b"GET /b 200 0.5 ms\n"]


def test_a_broken_pipe_does_not_stop_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, data: memoryview) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", broken)
    assert lines_of([], access_log(), (labels(), "a", 1)) == []


@pytest.mark.parametrize(
    "sizes", [[], [1], [5000], [100] * 200, [4096, 1, 4096], [5000, 10, 10], [10, 5000, 10]]
)
def test_chunks_have_whole_lines(sizes: list[int]) -> None:
    """No chunk exceeds PIPE_BUF unless it is a single line; nothing is lost."""
    waiting = [b"%d" % (number % 10) * (size - 1) + b"\n" for number, size in enumerate(sizes)]
    chunks_written = list(chunks(b"".join(waiting)))
    assert b"".join(chunks_written) == b"".join(waiting)
    for chunk in chunks_written:
        assert chunk.endswith(b"\n")
        assert len(chunk) <= 4096 or chunk.count(b"\n") == 1
    for one, other in pairwise(chunks_written):
        assert len(one) + len(other.splitlines(keepends=True)[0]) > 4096
