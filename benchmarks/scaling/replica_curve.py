"""Measures a replica on Ray behind HAProxy: requests per second by connections, CPU by process, and memory.

    python -m benchmarks.scaling.replica_curve --ray-python PYTHON [--seconds N]

PYTHON is the interpreter of an environment with turnpike and Ray. Requires wrk and haproxy.
"""

from __future__ import annotations

import argparse

import psutil

from benchmarks.cost.ray_cost import DIGITS_PATH, Way, digits_request, replicas, serving
from benchmarks.measurement.wrk import require_wrk, run_wrk

CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
# processes by what their titles have
TITLES = {
    "haproxy": "haproxy",
    "replica": "ServeReplica:turnpike:turnpike",
    "coordinator": "ServeReplica:turnpike:coordinator",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling.replica_curve", description=__doc__)
    parser.add_argument("--ray-python", required=True, help="interpreter with turnpike and Ray")
    parser.add_argument("--seconds", type=int, default=4, help="of each load (default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    request = digits_request()
    print(f"| connections | requests/s | {' | '.join(f'{name}, µs CPU' for name in TITLES)} |")
    print(f"| ---: | ---: |{' ---: |' * len(TITLES)}")
    with serving(Way("", replicas(1), haproxy=True), arguments.ray_python) as port:
        for connections in CONNECTIONS:
            before = cpu_seconds()
            result = run_wrk(port, [DIGITS_PATH], request, connections, arguments.seconds)
            after = cpu_seconds()
            costs = [(after[name] - before[name]) / result.requests * 1e6 for name in TITLES]
            cells = " | ".join(f"{cost:.0f}" for cost in costs)
            print(f"| {connections} | {result.rate:,.0f} | {cells} |", flush=True)
        for name in ("replica", "coordinator"):
            memory = sum(process.memory_full_info().pss for process in processes(name))
            print(f"\n{name}: {memory / 2**20:.0f} MiB (PSS)")


def processes(name: str) -> list[psutil.Process]:
    """The processes of a kind."""
    title = TITLES[name]
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == title or (process.info["cmdline"] or [""])[0].startswith(f"ray::{title}")
    ]


def cpu_seconds() -> dict[str, float]:
    """CPU time of all processes of each kind since they started."""
    return {name: sum(sum(process.cpu_times()[:2]) for process in processes(name)) for name in TITLES}


if __name__ == "__main__":
    main()
