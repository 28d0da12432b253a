"""A measurement is repeated if other processes disturb it, and the quietest counts."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.measurement import processes, wrk
from benchmarks.measurement.measure import MAX_ATTEMPTS, Workload, measure
from benchmarks.measurement.server_process import RunningServer
from benchmarks.measurement.wrk import LoadResult

LOAD = LoadResult(requests=1000, seconds=2.0, p50_ms=1, p99_ms=2, max_ms=3, lost=0, refused=100)


@pytest.fixture
def server() -> RunningServer:
    network = SimpleNamespace(rows=[[1.0, 2.0]] * 4, name="net")
    contestant = SimpleNamespace(paths={"rows": "/predict"})
    server = SimpleNamespace(
        network=network,
        contestant=contestant,
        port=1,
        path=lambda wire_format: f"/{wire_format}",
        request=lambda wire_format, row_count: row_count,
    )
    return cast("RunningServer", server)


def fake_loads(monkeypatch: pytest.MonkeyPatch, other_cpus: list[float]) -> list[Any]:
    """Replace wrk by loads of two seconds in which the server uses one CPU, wrk a half, and others these."""
    loads: list[Any] = []
    seconds = {"server": 0.0, "own": 0.0, "machine": 0.0}

    def run_wrk(*arguments: Any) -> LoadResult:
        seconds["server"] += 2.0
        seconds["own"] += 1.0
        seconds["machine"] += 3.0 + 2 * other_cpus[len(loads)]
        loads.append(arguments)
        return LOAD

    monkeypatch.setattr(wrk, "run_wrk", run_wrk)
    monkeypatch.setattr(processes, "descendants", list)
    monkeypatch.setattr(processes, "cpu_seconds", lambda _: seconds["server"])
    monkeypatch.setattr(processes, "own_seconds", lambda: seconds["own"])
    monkeypatch.setattr(processes, "machine_seconds", lambda: seconds["machine"])
    return loads


def test_a_quiet_measurement_is_not_repeated(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate does not include refused requests."""
    loads = fake_loads(monkeypatch, [0.1])
    fields = measure(server, Workload("JSON", 3, 16), 2).fields()
    assert len(loads) == 1
    assert loads[0][1:3] == (["/rows"], 3)
    assert (fields["server_cpus"], fields["load_cpus"], fields["other_cpus"]) == (1.0, 0.5, 0.1)
    assert (fields["rate"], fields["refused"]) == (450.0, 100)


def test_a_disturbed_measurement_is_repeated(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = fake_loads(monkeypatch, [1.0, 0.2])
    assert measure(server, Workload("JSON", 1, 16), 2).other_cpus == pytest.approx(0.2)
    assert len(loads) == 2


def test_where_none_is_quiet_the_quietest_is_taken(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = fake_loads(monkeypatch, [0.9, 0.4, 0.7])
    assert measure(server, Workload("JSON", 1, 16), 2).other_cpus == pytest.approx(0.4)
    assert len(loads) == MAX_ATTEMPTS == 3


@pytest.mark.parametrize(
    ("kind", "known", "wire_format"),
    [
        ("JSON", ["v2 JSON", "v2 binary"], "v2 JSON"),
        ("binary", ["v2 JSON", "v2 binary"], "v2 binary"),
        ("JSON", ["rows, bare answer"], "rows, bare answer"),
        ("gRPC", ["v2 gRPC", "v2 binary"], "v2 gRPC"),
        ("JSON", ["v2 gRPC", "v2 binary"], None),
        ("binary", ["rows"], None),
    ],
)
def test_a_workload_has_a_wire_format_that_the_server_knows(
    kind: Any, known: list[Any], wire_format: str | None
) -> None:
    for order in itertools.permutations(known):
        assert Workload(kind, 1, 1).wire_format(order) == wire_format
