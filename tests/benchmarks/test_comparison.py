"""The rounds of a comparison: as many as there is time for, and no end because one server fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import ceiling, cells, comparison, environments, load
from benchmarks.contestants import NAIVE, OURS
from benchmarks.errors import BenchmarkError
from benchmarks.lines import Line, Writer, read
from benchmarks.nets import Net


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nothing is started or loaded; each start takes ten seconds of a clock that stands still meanwhile."""
    now = [0.0]

    @contextlib.contextmanager
    def serving(one: Any, net: Any) -> Iterator[Any]:
        now[0] += 10
        if one is NAIVE and net.name == "L":
            raise BenchmarkError("naive: expected more")
        yield SimpleNamespace(contestant=one, started=0.5, check=lambda form, rows: None)

    def measured(server: Any, cell: Any, seconds: int, paths: Any = (), tries: int = 3) -> cells.Measured:
        came = load.Load(requests=20, seconds=2, p50_ms=1, p99_ms=2, max_ms=3, lost=0, refused=0)
        return cells.Measured(came, 1.0, 0.5, 0.0)

    monkeypatch.setattr(comparison, "serving", serving)
    monkeypatch.setattr(comparison, "measured", measured)
    monkeypatch.setattr(comparison, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(ceiling, "rates", lambda net, batches, **of: dict.fromkeys(batches, 1.0))
    monkeypatch.setattr(environments, "python", lambda name, base: Path("python"))
    monkeypatch.setattr(Net, "ensure", lambda net: None)
    return now


def compared(folder: Path, minutes: float) -> list[Line]:
    with Writer(folder / "r.jsonl") as writer:
        comparison.compare([OURS, NAIVE], writer, minutes=minutes, seconds=2)
    return read(folder / "r.jsonl")


@pytest.mark.parametrize(("minutes", "rounds"), [(0, 1), (1.4, 2), (2.2, 3)])
def test_rounds_go_on_while_there_is_time(
    minutes: float, rounds: int, tmp_path: Path, clock: list[float]
) -> None:
    """For a whole one of 40 seconds, but one is always measured."""
    lines = compared(tmp_path, minutes)
    assert {line["round"] for line in lines if line["kind"] == "cell"} == set(range(rounds))


def test_a_round_measures_everyone(tmp_path: Path, clock: list[float]) -> None:
    """Each cell that a server has, its memory and start, and the ceiling."""
    lines = compared(tmp_path, 0)
    ours = [line for line in lines if line.get("server") == "turnpike" and line["kind"] == "cell"]
    assert [(line["net"], line["request"], line["rows"], line["connections"]) for line in ours] == [
        (net, cell.kind, cell.rows, cell.connections)
        for net, of_net in comparison.CELLS.items()
        for cell in of_net
    ]
    naive = [line for line in lines if line.get("server") == "naive FastAPI" and line["kind"] == "cell"]
    assert {line["request"] for line in naive} == {"JSON"}
    assert len([line for line in lines if line["kind"] == "ceiling"]) == 3 * 2 * len(comparison.BATCHES)
    assert len([line for line in lines if line["kind"] == "server"]) == 3


def test_a_server_that_fails_is_told_of(tmp_path: Path, clock: list[float]) -> None:
    """And the others are measured."""
    (failed,) = (line for line in compared(tmp_path, 0) if line["kind"] == "failed")
    assert (failed["server"], failed["net"], failed["failed"]) == (
        "naive FastAPI",
        "L",
        "naive: expected more",
    )


def test_a_rival_that_cannot_be_had_is_left_out(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of once, whatever the number of rounds."""

    def missing(name: str, base: str | None) -> Path:
        raise BenchmarkError(f"{name}: expected a network")

    monkeypatch.setattr(environments, "python", missing)
    lines = compared(tmp_path, 2)
    assert [line["failed"] for line in lines if line["kind"] == "failed"] == ["naive: expected a network"]
    assert {line["server"] for line in lines if line["kind"] == "cell"} == {"turnpike"}
