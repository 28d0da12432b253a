"""Measures what Ray adds to a request: requests per second of the plain service, and of replicas on Ray.

    python -m benchmarks.cost.ray_cost --ray-python PYTHON [--seconds N] [--rounds N]

PYTHON is the interpreter of an environment with turnpike and Ray. The servers take turns. One row of
the bundled digits model is asked for, on 1 and 64 connections. Requires wrk, and uses haproxy if it is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from benchmarks.measurement.wrk import HOST, LoadResult, require_wrk, run_wrk

DIGITS_PATH = "/v2/models/digits-10/infer"
CONNECTIONS = (1, 64)
START_SECONDS = 90


@dataclass(frozen=True)
class Way:
    """A way to serve: workers of the plain service, or replicas on Ray behind one of its fronts."""

    title: str
    options: tuple[str, ...]
    on_ray: bool = True
    haproxy: bool = False


def replicas(count: int) -> tuple[str, ...]:
    # four replicas on two CPUs
    return ("--min-replicas", str(count), "--max-replicas", str(count), "--replica-cpus", "0.1")


def ways() -> list[Way]:
    plain = [Way(f"plain, {count} workers", ("--workers", str(count)), on_ray=False) for count in (1, 2)]
    python = [Way(f"Ray's own proxy, {count} replicas", replicas(count)) for count in (1, 2, 4)]
    haproxy = [Way(f"HAProxy, {count} replicas", replicas(count), haproxy=True) for count in (1, 2, 4)]
    return [*plain, *python, *(haproxy if shutil.which("haproxy") else [])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost.ray_cost", description=__doc__)
    parser.add_argument("--ray-python", required=True, help="interpreter with turnpike and Ray")
    parser.add_argument("--seconds", type=int, default=4, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    request = digits_request()
    results: dict[tuple[str, int], list[LoadResult]] = {}
    for _ in range(arguments.rounds):
        for way in ways():
            with serving(way, arguments.ray_python if way.on_ray else sys.executable) as port:
                run_wrk(port, [DIGITS_PATH], request, 16, 1)
                for connections in CONNECTIONS:
                    result = run_wrk(port, [DIGITS_PATH], request, connections, arguments.seconds)
                    if result.lost or result.refused:
                        raise BenchmarkError(f"{way.title}: expected answers to all requests, got {result}")
                    results.setdefault((way.title, connections), []).append(result)
    print("| | 1 connection, requests/s | p50, ms | 64 connections, requests/s | p99, ms |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for way in ways():
        one, many = (results[way.title, connections] for connections in CONNECTIONS)
        cells = [
            f"{median(one, 'rate'):,.0f}",
            f"{median(one, 'p50_ms'):.2f}",
            f"{median(many, 'rate'):,.0f}",
            f"{median(many, 'p99_ms'):.1f}",
        ]
        print(f"| {way.title} | {' | '.join(cells)} |")


def digits_request() -> EncodedRequest:
    """A request for one row of the bundled digits model."""
    data = [float(value % 17) for value in range(64)]
    tensor = {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": data}
    return EncodedRequest(json.dumps({"inputs": [tensor]}).encode(), {"Content-Type": "application/json"})


def median(results: list[LoadResult], name: str) -> float:
    return statistics.median(getattr(result, name) for result in results)


@contextlib.contextmanager
def serving(way: Way, python: str) -> Iterator[int]:
    """The port of a server that is ready."""
    with socket.create_server((HOST, 0)) as listener:
        port = int(listener.getsockname()[1])
    engine = ("--engine", "ray") if way.on_ray else ()
    process = subprocess.Popen(
        [python, "-m", "turnpike", "serve", "--port", str(port), "--no-access-log", *engine, *way.options],
        cwd=ROOT,
        env=os.environ | {"RAY_ADDRESS": "local", "RAY_SERVE_ENABLE_HA_PROXY": "1" if way.haproxy else "0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "turnpike serves http" in line:
                break
        else:
            raise BenchmarkError(f"{way.title}: expected a server that starts, got: {''.join(lines)[-400:]}")
        killer.cancel()
        yield port
    finally:
        killer.cancel()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


if __name__ == "__main__":
    main()
