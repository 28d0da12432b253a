"""Compares turnpike with its rivals and the limits: every server in turn, round after round."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.contestants.contestants import Contestant
from benchmarks.contestants.networks import NETWORKS, BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import onnxruntime_ceiling, processes
from benchmarks.measurement.measure import RequestKind, Workload, measure, warm_up
from benchmarks.measurement.server_process import RunningServer, running_server
from benchmarks.results.results_file import ResultsWriter

WORKLOADS: dict[str, tuple[Workload, ...]] = {
    "S": (
        Workload("JSON", 1, 1),
        Workload("JSON", 1, 16),
        Workload("JSON", 1, 64),
        Workload("JSON", 32, 16),
        Workload("binary", 32, 16),
    ),
    "L": (Workload("JSON", 1, 1), Workload("JSON", 1, 16), Workload("JSON", 1, 64)),
}
# onnxruntime without a server: rows of a run, number of processes with threads of each, and time of each
CEILING_BATCHES = (1, 8, 32, 128)
CEILING_PROCESSES_AND_THREADS = ((2, 1), (1, 2))
CEILING_SECONDS = 0.4


def compare(
    contestants: Sequence[Contestant], writer: ResultsWriter, *, minutes: float, seconds: int
) -> None:
    """Measure at least one round, and further ones as long as there is time for another.

    Arguments:
        contestants: the servers; a rival that cannot be installed is recorded as failed and left out
        writer: the results file
        minutes: time for all rounds together
        seconds: duration of each measurement
    """
    end = time.monotonic() + 60 * minutes
    for network in NETWORKS:
        network.ensure_files()
    installed = [contestant for contestant in contestants if is_installed(contestant, writer)]
    rounds, longest_round = 0, 0.0
    while rounds == 0 or time.monotonic() + longest_round < end:
        start = time.monotonic()
        measure_round(installed, writer, rounds, seconds)
        longest_round = max(longest_round, time.monotonic() - start)
        rounds += 1
    print(f"{rounds} rounds of {longest_round:.0f} s", file=sys.stderr)


def is_installed(contestant: Contestant, writer: ResultsWriter) -> bool:
    """Whether its environment exists or could be created; if not, the reason is recorded."""
    try:
        contestant.python()
    except BenchmarkError as error:
        writer.write({"kind": "failed", "server": contestant.name, "failed": str(error)})
        return False
    return True


def measure_round(
    contestants: Sequence[Contestant], writer: ResultsWriter, round_number: int, seconds: int
) -> None:
    """Measure the ceiling and every server for each network."""
    for network in NETWORKS:
        for precision, (workers, threads) in product(network.precisions, CEILING_PROCESSES_AND_THREADS):
            shape: dict[str, Any] = {"processes": workers, "threads": threads, "precision": precision}
            rates = onnxruntime_ceiling.measure_ceiling(
                network, CEILING_BATCHES, seconds=CEILING_SECONDS, **shape
            )
            for batch, rate in rates.items():
                fields = {"kind": "ceiling", "round": round_number, "net": network.name, "batch": batch}
                writer.write({**fields, **shape, "rows": round(rate, 1)})
        for contestant in contestants:
            if network.name in contestant.networks:
                measure_server(contestant, network, writer, round_number, seconds)


def measure_server(
    contestant: Contestant,
    network: BenchmarkNetwork,
    writer: ResultsWriter,
    round_number: int,
    seconds: int,
) -> None:
    """Start a server, check its answers, and measure its workloads and its memory.

    A failure is recorded, and the benchmark goes on with the next server.
    """
    fields: dict[str, Any] = {"round": round_number, "server": contestant.name, "net": network.name}
    try:
        with running_server(contestant, network) as server:
            warm_kinds: set[RequestKind] = set()
            for workload in WORKLOADS[network.name]:
                if workload.wire_format(list(contestant.paths)) is not None:
                    measured = measure_workload(server, workload, seconds, warm_kinds)
                    writer.write({"kind": "cell", **fields, **measured})
            memory = processes.memory_usage(processes.descendants())
            writer.write({"kind": "server", **fields, "started": round(server.start_seconds, 2), **memory})
    except BenchmarkError as error:
        writer.write({"kind": "failed", **fields, "failed": str(error)})


def measure_workload(
    server: RunningServer, workload: Workload, seconds: int, warm_kinds: set[RequestKind]
) -> dict[str, Any]:
    """The fields of a workload's line; each kind of request has a warm-up before its first workload."""
    wire_format = workload.wire_format(list(server.contestant.paths))
    assert wire_format is not None
    server.check(wire_format, workload.rows)
    if workload.kind not in warm_kinds:
        warm_up(server, Workload(workload.kind, workload.rows, 16))
        warm_kinds.add(workload.kind)
    asked = {"request": workload.kind, "rows": workload.rows, "connections": workload.connections}
    return asked | measure(server, workload, seconds).fields()
