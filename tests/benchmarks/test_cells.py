"""One measurement: repeated where others disturbed it, and the quietest taken."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import cells, load, processes
from benchmarks.cells import Cell, measured
from benchmarks.load import Load
from benchmarks.server import Server

CAME = Load(requests=1000, seconds=2.0, p50_ms=1, p99_ms=2, max_ms=3, lost=0, refused=100)


@pytest.fixture
def server() -> Server:
    net = SimpleNamespace(rows=[[1.0, 2.0]] * 4, name="net")
    contestant = SimpleNamespace(forms={"rows": "/predict"})
    path = SimpleNamespace(net=net, contestant=contestant, port=1, path=lambda form: f"/{form}")
    return cast("Server", path)


def disturbed(monkeypatch: pytest.MonkeyPatch, others: list[float]) -> list[Any]:
    """Loads of two seconds in which the server takes one CPU, wrk a half, and others what they take."""
    asked: list[Any] = []
    times = {"server": 0.0, "own": 0.0, "machine": 0.0}

    def drive(*of: Any) -> Load:
        times["server"] += 2.0
        times["own"] += 1.0
        times["machine"] += 3.0 + 2 * others[len(asked)]
        asked.append(of)
        return CAME

    monkeypatch.setattr(load, "drive", drive)
    monkeypatch.setattr(processes, "descendants", list)
    monkeypatch.setattr(processes, "cpu_seconds", lambda _: times["server"])
    monkeypatch.setattr(processes, "own_seconds", lambda: times["own"])
    monkeypatch.setattr(processes, "machine_seconds", lambda: times["machine"])
    return asked


def test_a_quiet_measurement_is_taken_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPUs of each side; answers that were refused are no good ones."""
    asked = disturbed(monkeypatch, [0.1])
    line = measured(server, Cell("JSON", 3, 16), 2).line()
    assert len(asked) == 1
    assert asked[0][1] == ["/rows"]
    assert (line["server_cpus"], line["load_cpus"], line["other_cpus"]) == (1.0, 0.5, 0.1)
    assert (line["rate"], line["refused"]) == (450.0, 100)


def test_a_disturbed_measurement_is_repeated(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until one is quiet."""
    asked = disturbed(monkeypatch, [1.0, 0.2])
    assert measured(server, Cell("JSON", 1, 16), 2).other_cpus == pytest.approx(0.2)
    assert len(asked) == 2


def test_where_none_is_quiet_the_quietest_is_taken(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries."""
    asked = disturbed(monkeypatch, [0.9, 0.4, 0.7])
    assert measured(server, Cell("JSON", 1, 16), 2).other_cpus == pytest.approx(0.4)
    assert len(asked) == cells.TRIES == 3


@pytest.mark.parametrize(
    ("kind", "forms", "form"),
    [
        ("JSON", ["v2 JSON", "v2 binary"], "v2 JSON"),
        ("binary", ["v2 JSON", "v2 binary"], "v2 binary"),
        ("JSON", ["rows, bare answer"], "rows, bare answer"),
        ("binary", ["rows"], None),
    ],
)
def test_a_cell_is_of_a_form_that_the_server_has(kind: Any, forms: list[Any], form: str | None) -> None:
    """Or the server has no such cell."""
    for order in itertools.permutations(forms):
        assert Cell(kind, 1, 1).form(order) == form
