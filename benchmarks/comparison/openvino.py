"""Measures what OpenVINO gains for a wide network: requests per second on it, and without it.

    python -m benchmarks.comparison.openvino --openvino-python PYTHON [--seconds N] [--rounds N]

PYTHON is the interpreter of an environment with turnpike and OpenVINO. The servers take turns. mosec with
one worker, the fastest rival on this network, is among them. Requires wrk.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace

from benchmarks.comparison import rounds
from benchmarks.contestants.contestants import TURNPIKE, Contestant, mosec, turnpike
from benchmarks.contestants.networks import NETWORK_L
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.measure import measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.measurement.wrk import require_wrk
from benchmarks.results.tables import connections_label, markdown_table

WORKLOADS = rounds.WORKLOADS[NETWORK_L.name]


def on_openvino(python: str, precision: str, workers: int, threads: int) -> Contestant:
    """turnpike on OpenVINO, in an environment of its own."""
    name = f"OpenVINO, {precision}, {workers} x {threads}"
    options = ("--device", "openvino", "--precision", precision)
    ours = turnpike(name, *options, workers=workers, threads=threads, computes_in_fp32=precision == "fp32")
    return replace(ours, arguments=(python, *ours.arguments[1:]))


def contestants(python: str) -> list[Contestant]:
    """The servers, with their workers x threads for two CPUs."""
    splits = ((1, 2), (2, 1))
    openvino = [on_openvino(python, precision, *split) for precision in ("fp32", "bf16") for split in splits]
    return [TURNPIKE, *openvino, mosec(wait_ms=1, workers=1, threads=2)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison.openvino", description=__doc__)
    parser.add_argument("--openvino-python", required=True, help="interpreter with turnpike and OpenVINO")
    parser.add_argument("--seconds", type=int, default=2, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    processes.adopt_descendants()
    NETWORK_L.ensure_files()
    servers = contestants(arguments.openvino_python)
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for contestant in servers:
            with running_server(contestant, NETWORK_L) as server:
                warm_up(server, WORKLOADS[-1])
                for workload in WORKLOADS:
                    load = measure(server, workload, arguments.seconds).load
                    if load.lost or load.refused:
                        raise BenchmarkError(
                            f"{contestant.name}: expected answers to all requests, got {load}"
                        )
                    rates.setdefault((contestant.name, workload.connections), []).append(load.rate)
    head = ["requests per second", *(connections_label(workload.connections) for workload in WORKLOADS)]
    rows = []
    for contestant in servers:
        medians = (statistics.median(rates[contestant.name, workload.connections]) for workload in WORKLOADS)
        rows.append([contestant.name, *(f"{rate:,.0f}" for rate in medians)])
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
