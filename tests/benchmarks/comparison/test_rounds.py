"""The rounds of a comparison: as many as there is time for, and not ended by a server that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.comparison import rounds
from benchmarks.contestants import environments
from benchmarks.contestants.contestants import NAIVE, TURNPIKE
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import onnxruntime_ceiling
from benchmarks.measurement.measure import Measurement
from benchmarks.measurement.wrk import LoadResult
from benchmarks.results.results_file import ResultLine, ResultsWriter, read_results


@pytest.fixture
def fake_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started; each start takes ten seconds of a fake clock, and all else no time."""
    now = [0.0]

    @contextlib.contextmanager
    def running_server(contestant: Any, network: Any) -> Iterator[Any]:
        now[0] += 10
        if contestant is NAIVE and network.name == "L":
            raise BenchmarkError("naive: expected more")
        yield SimpleNamespace(
            contestant=contestant, start_seconds=0.5, check=lambda wire_format, row_count: None
        )

    def measure(*arguments: Any) -> Measurement:
        load = LoadResult(requests=20, seconds=2, p50_ms=1, p99_ms=2, max_ms=3, lost=0, refused=0)
        return Measurement(load, 1.0, 0.5, 0.0)

    def measure_ceiling(network: Any, batches: Any, **options: Any) -> dict[int, float]:
        return dict.fromkeys(batches, 1.0)

    monkeypatch.setattr(rounds, "running_server", running_server)
    monkeypatch.setattr(rounds, "measure", measure)
    monkeypatch.setattr(rounds, "warm_up", lambda *arguments: None)
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(onnxruntime_ceiling, "measure_ceiling", measure_ceiling)
    monkeypatch.setattr(environments, "ensure_environment", lambda rival, base_python: Path("python"))
    monkeypatch.setattr(BenchmarkNetwork, "ensure_files", lambda network: None)


def compare(folder: Path, minutes: float) -> list[ResultLine]:
    with ResultsWriter(folder / "r.jsonl") as writer:
        rounds.compare([TURNPIKE, NAIVE], writer, minutes=minutes, seconds=2)
    return read_results(folder / "r.jsonl")


@pytest.mark.usefixtures("fake_servers")
@pytest.mark.parametrize(("minutes", "rounds"), [(0, 1), (1.4, 2), (2.2, 3)])
def test_rounds_go_on_while_there_is_time(minutes: float, rounds: int, tmp_path: Path) -> None:
    """A round takes 40 seconds; the first one is measured in any case."""
    lines = compare(tmp_path, minutes)
    assert {line["round"] for line in lines if line["kind"] == "cell"} == set(range(rounds))


@pytest.mark.usefixtures("fake_servers")
def test_a_round_measures_everyone(tmp_path: Path) -> None:
    """Each workload that a server knows, its memory and start, and the ceiling."""
    lines = compare(tmp_path, 0)
    of_turnpike = [line for line in lines if line.get("server") == "turnpike" and line["kind"] == "cell"]
    assert [(line["net"], line["request"], line["rows"], line["connections"]) for line in of_turnpike] == [
        (network, workload.kind, workload.rows, workload.connections)
        for network, workloads in rounds.WORKLOADS.items()
        for workload in workloads
    ]
    of_naive = [line for line in lines if line.get("server") == "naive FastAPI" and line["kind"] == "cell"]
    assert {line["request"] for line in of_naive} == {"JSON"}
    ceilings = [line for line in lines if line["kind"] == "ceiling"]
    assert len(ceilings) == 3 * 2 * len(rounds.CEILING_BATCHES)
    assert len([line for line in lines if line["kind"] == "server"]) == 3


@pytest.mark.usefixtures("fake_servers")
def test_the_failure_of_a_server_is_recorded(tmp_path: Path) -> None:
    """The others are measured: see the test above."""
    (failed,) = (line for line in compare(tmp_path, 0) if line["kind"] == "failed")
    assert (failed["server"], failed["net"], failed["failed"]) == (
        "naive FastAPI",
        "L",
        "naive: expected more",
    )


@pytest.mark.usefixtures("fake_servers")
def test_a_rival_that_cannot_be_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded once, whatever the number of rounds."""

    def ensure_environment(rival: str, base_python: str | None) -> Path:
        raise BenchmarkError(f"{rival}: expected a network")

    monkeypatch.setattr(environments, "ensure_environment", ensure_environment)
    lines = compare(tmp_path, 2)
    assert [line["failed"] for line in lines if line["kind"] == "failed"] == ["naive: expected a network"]
    assert {line["server"] for line in lines if line["kind"] == "cell"} == {"turnpike"}
