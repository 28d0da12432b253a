"""Measures what OpenVINO gains for a wide network: requests per second on it, and without it.

    python -m benchmarks.comparison.openvino [--seconds N] [--rounds N]

The servers take turns. mosec with one worker, the fastest rival on this network, is among them. Requires wrk,
the extra serve-openvino, and a CPU of Intel with bf16.
"""

from __future__ import annotations

import argparse

from benchmarks.comparison import rounds
from benchmarks.comparison.median_rates import median_rates
from benchmarks.contestants.contestants import TURNPIKE, Contestant, mosec, turnpike
from benchmarks.contestants.networks import NETWORK_L
from benchmarks.results.tables import connections_label, markdown_table
from turnpike.service.artifact.runtime import expect_device

WORKLOADS = rounds.WORKLOADS[NETWORK_L.name]


def on_openvino(precision: str, workers: int, threads: int) -> Contestant:
    """turnpike on OpenVINO."""
    name = f"OpenVINO, {precision}, {workers} x {threads}"
    options = ("--device", "openvino", "--precision", precision)
    return turnpike(name, *options, workers=workers, threads=threads, computes_in_fp32=precision == "fp32")


def contestants() -> list[Contestant]:
    """The servers, with their workers x threads for two CPUs."""
    splits = ((1, 2), (2, 1))
    openvino = [on_openvino(precision, *split) for precision in ("fp32", "bf16") for split in splits]
    return [TURNPIKE, *openvino, mosec(wait_ms=1, workers=1, threads=2)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison.openvino", description=__doc__)
    parser.add_argument("--seconds", type=int, default=2, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    expect_device("openvino", "bf16")
    rates = median_rates(
        contestants(), NETWORK_L, WORKLOADS, rounds=arguments.rounds, seconds=arguments.seconds
    )
    head = ["requests per second", *(connections_label(workload.connections) for workload in WORKLOADS)]
    rows = [[name, *(f"{rate:,.0f}" for rate in medians)] for name, medians in rates.items()]
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
