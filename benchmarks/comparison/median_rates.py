"""Requests per second of servers that take turns: medians over rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.contestants.contestants import Contestant
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.measure import Workload, measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.measurement.wrk import require_wrk


def median_rates(
    contestants: Sequence[Contestant],
    network: BenchmarkNetwork,
    workloads: Sequence[Workload],
    *,
    rounds: int,
    seconds: int,
) -> Mapping[str, list[float]]:
    """The rate of each workload, by the name of the contestant. Each round starts each server once.

    Arguments:
        contestants: the servers, in the order in which they take turns
        network: the network that they serve
        workloads: the loads of a server; the last one is its warm-up, too
        rounds: how many times each server is measured
        seconds: duration of each load

    Raises:
        BenchmarkError: A request was lost or refused, or a server did not start.
    """
    require_wrk()
    processes.adopt_descendants()
    network.ensure_files()
    rates: dict[str, list[list[float]]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            with running_server(contestant, network) as server:
                warm_up(server, workloads[-1])
                loads = [measure(server, workload, seconds).load for workload in workloads]
            for load in loads:
                if load.lost or load.refused:
                    raise BenchmarkError(f"{contestant.name}: expected answers to all requests, got {load}")
            rates[contestant.name].append([load.rate for load in loads])
    return {
        name: [statistics.median(of_workload) for of_workload in zip(*of_rounds, strict=True)]
        for name, of_rounds in rates.items()
    }
