"""Tests of the access log: its lines."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from turnpike.service.inference_types import InferenceResult
from turnpike.service.telemetry.access_log import AccessLog, Entry, Labels


def labels(path: str = "/a", status: int = 200, route: str = "/{file}", model: str | None = None) -> Labels:
    return "127.0.0.1", "GET", path, route, status, model, 3


class WrittenLog(AccessLog):
    """An access log that keeps its lines in `written`."""

    def __init__(
        self, worker: int | None = None, *, human: bool = False, min_level: int = logging.INFO
    ) -> None:
        self.written: list[bytes] = []
        super().__init__(lambda lines: self.written.extend(lines.splitlines(keepends=True)))
        self.configure(worker, human=human, min_level=min_level)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written]


def entry(
    labels: Labels,
    request_id: str = "a",
    ns: int = 1,
    result: InferenceResult | None = None,
    extra_fields: dict[str, Any] | None = None,
) -> Entry:
    return labels, request_id, ns, result, extra_fields


def lines_of(log: WrittenLog, *entries: Entry) -> list[dict[str, Any]]:
    """The parsed lines of entries."""
    log.add(entries)
    return log.lines()


def test_a_line_has_all_fields() -> None:
    result = InferenceResult((), queue_ns=1_500_000, run_ns=2_500_900, batch_rows=4)
    (line,) = lines_of(
        WrittenLog(2), entry(labels(model="digits"), 'an "id"', 123_456_789, result, {"error": "no\nway"})
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


def test_a_line_without_a_run_names_no_model() -> None:
    (line,) = lines_of(WrittenLog(), entry(labels(), ns=1_000_000))
    assert line["ms"] == 1
    assert not line.keys() & {"model", "queue_ms", "run_ms", "batch", "error"}


@pytest.mark.slow
def test_times_grow_from_line_to_line() -> None:
    """The time is that of the line, although the labels are rendered only once."""
    log = WrittenLog()

    for _ in range(3):
        log.add([entry(labels())])
        time.sleep(0.4)
    times = [datetime.fromisoformat(line["time"]) for line in log.lines()]
    assert len(times) == 3
    assert all(timedelta(seconds=0.3) < later - earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("level", "paths"),
    [("DEBUG", ["/a", "/ready", "/failed"]), ("INFO", ["/a", "/failed"]), ("WARNING", [])],
)
def test_successful_probes_are_logged_at_debug(level: str, paths: list[str]) -> None:
    log = WrittenLog(min_level=logging.getLevelNamesMapping()[level])
    probe = "/v2/health/ready"
    entries = [labels(), labels("/ready", route=probe), labels("/failed", 503, probe)]
    lines = lines_of(log, *map(entry, entries))
    assert [line["path"] for line in lines] == paths


def test_configuring_applies_to_labels_that_were_rendered_before() -> None:
    log = WrittenLog(1)
    lines_of(log, entry(labels()))
    log.configure(2, human=False, min_level=logging.INFO)
    assert [line["worker"] for line in lines_of(log, entry(labels()))] == [1, 2]


def test_a_terminal_gets_short_lines() -> None:
    log = WrittenLog(human=True)
    log.add([entry(labels("/a"), ns=500_000)])
    assert [line[9:] for line in log.written] == [b"GET /a 200 0.5 ms\n"]
