"""The rates of servers that take turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.comparison import median_rates
from benchmarks.contestants.contestants import NAIVE, TURNPIKE
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.measure import Workload
from benchmarks.measurement.wrk import Load

WORKLOADS = (Workload("JSON", 1, 1), Workload("JSON", 1, 16))
NETWORK = cast("BenchmarkNetwork", SimpleNamespace(ensure_files=lambda: None))


class FakeServers:
    """Servers that are not started: each load is recorded, and is faster by the number of loads before."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost
        self.loads: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def running_server(self, contestant: Any, network: Any) -> Iterator[Any]:
        yield contestant

    def measure(self, server: Any, workload: Workload, seconds: int) -> Any:
        self.loads.append((server.name, workload.connections))
        load = Load(100 * len(self.loads) * seconds, seconds, lost=self.lost, refused=0)
        return SimpleNamespace(load=load)


def rates(fake: FakeServers, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    monkeypatch.setattr(median_rates, "require_wrk", lambda: None)
    monkeypatch.setattr(processes, "adopt_descendants", lambda: None)
    monkeypatch.setattr(median_rates, "warm_up", lambda server, workload: None)
    monkeypatch.setattr(median_rates, "running_server", fake.running_server)
    monkeypatch.setattr(median_rates, "measure", fake.measure)
    measured = median_rates.median_rates([TURNPIKE, NAIVE], NETWORK, WORKLOADS, rounds=3, seconds=2)
    return dict(measured)


def test_servers_take_turns_and_rates_are_medians_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeServers()
    measured = rates(fake, monkeypatch)
    assert fake.loads == [(name, count) for name in (TURNPIKE.name, NAIVE.name) for count in (1, 16)] * 3
    # of loads 1, 5 and 9; 2, 6 and 10; and so on
    assert measured == {TURNPIKE.name: [500, 600], NAIVE.name: [700, 800]}


def test_a_lost_request_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchmarkError, match="expected answers to all requests"):
        rates(FakeServers(lost=1), monkeypatch)
