"""Measures what the cache of prepared weights saves: time of loads, and memory of one and four workers.

    python -m benchmarks.cost.shared_weights_cost [--rounds N] [--workers N ...]

The first table has loads of L in one process: without the cache; the first with it, which prepares the
weights; one that reads them to check their digests, as the first after a start of the machine does;
and one that only maps them. Beside the time, it has the CPU time, which other programs on the machine
change less.

The second table has services of L with each number of workers: without the cache, with an empty one, and with
one that is full. The load is that of the log, the median over the workers. Then the model is unloaded and
loaded again. Memory (PSS) is that of all processes: pages that processes share count once. It is measured
after one row for each worker, and again after batches of up to 64 rows, with all gates for those of up to 7.
The answers of all services must be the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from benchmarks.contestants.networks import NETWORK_L
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.our_server import OurServer, running_turnpike
from benchmarks.measurement.processes import memory_usage, own_seconds
from turnpike.service.config.settings import Settings
from turnpike.service.registry.loader import load
from turnpike.service.repository.scan import scan
from turnpike.service.telemetry.counters import RequestCounters
from turnpike.service.weights.cache import FOLDER, WeightsCache
from turnpike.service.weights.entry import STAMP
from turnpike.service.weights.preparation import cpu_description

ADMIN_KEY = "the-key-of-a-benchmark"
ROWS = (1, 2, 7, 64)
# connections for each worker, so that all of them answer
CONNECTIONS = 8
# Workers return free memory once a second. Files that are this old are trusted without being read.
SETTLE_SECONDS, TRUST_SECONDS = 1.5, 4.0
# how long the log may take to have the loads
LOG_SECONDS = 10.0
# loads of each kind in a round
LOADS = 5
LOADED = re.compile(r"L/1: loaded .* in (\d+) ms")
FORMS = ("off", "empty", "full")


class ServerFigures(NamedTuple):
    """What one server took: milliseconds of loads, and MiB."""

    start_ms: float
    reload_ms: float
    pss_at_start: int
    pss_under_load: int


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost.shared_weights_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4], help="(default: 1 4)")
    arguments = parser.parse_args()
    NETWORK_L.ensure_files()
    print_loads(arguments.rounds)
    figures: dict[tuple[int, str], list[ServerFigures]] = {}
    answers = set()
    for _ in range(arguments.rounds):
        for workers in arguments.workers:
            with tempfile.TemporaryDirectory() as cache:
                for form in FORMS:
                    server_figures, answer = measure(workers, form, Path(cache))
                    figures.setdefault((workers, form), []).append(server_figures)
                    answers.add(answer)
                    time.sleep(TRUST_SECONDS if form == "empty" else 0)
    print_services(figures)
    if len(answers) != 1:
        raise SystemExit(f"expected the same answers from all servers, got {len(answers)} different ones")
    print("\nAll servers gave the same answers, byte for byte.")


def print_loads(rounds: int) -> None:
    """Print the medians of loads in this process."""
    (files,) = scan(NETWORK_L.model_repository()).models.values()
    settings, kinds = Settings(), ("without", "prepares", "reads", "maps")
    loads: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}

    def load_once(kind: str, weights: WeightsCache | None) -> None:
        start, cpu_start = time.perf_counter(), own_seconds()
        load(files[0], settings, RequestCounters(), 1, weights=weights)
        cpu = own_seconds() - cpu_start
        loads[kind].append((1000 * (time.perf_counter() - start), 1000 * cpu))

    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            weights = WeightsCache(Path(folder) / FOLDER, settings.weights_cache, str(cpu_description()))
            load_once("prepares", weights)
            time.sleep(TRUST_SECONDS)
            for _ in range(LOADS):
                load_once("without", None)
                for stamp in weights.entries.glob(f"*/{STAMP}"):
                    stamp.unlink()
                load_once("reads", weights)
                load_once("maps", weights)
    print("| load | time | CPU time |\n| --- | ---: | ---: |")
    for kind in kinds:
        seconds, cpu = (statistics.median(values) for values in zip(*loads[kind], strict=True))
        print(f"| {kind} | {seconds:.0f} ms | {cpu:.0f} ms |")
    print(flush=True)


def measure(workers: int, form: str, cache: Path) -> tuple[ServerFigures, bytes]:
    """Run one server; its figures, and its answers."""
    options = ["--models", NETWORK_L.model_repository(), "--workers", workers, "--threads", 1]
    options += ["--weights-cache", 0] if form == "off" else []
    variables = {"TURNPIKE_ADMIN_KEY": ADMIN_KEY, "TURNPIKE_CACHE": str(cache)}
    with running_turnpike(*options, variables=variables) as server:
        start_ms = load_ms(server, workers, 1)
        ask_all(server, workers, 1)
        time.sleep(SETTLE_SECONDS)
        at_start = pss(server)
        answers = b"".join(ask_all(server, workers, rows) for rows in ROWS)
        time.sleep(SETTLE_SECONDS)
        under_load = pss(server)
        for action in ("unload", "load"):
            post(server, f"/v2/repository/models/{NETWORK_L.name}/{action}", b"{}")
        return ServerFigures(start_ms, load_ms(server, workers, 2), at_start, under_load), answers


def load_ms(server: OurServer, workers: int, times: int) -> float:
    """The median over the workers of their last load, once each has loaded the model this often."""
    end = time.monotonic() + LOG_SECONDS
    # a thread of each worker writes its log
    while len(loads := LOADED.findall(server.log.read_text())) < times * workers:
        if time.monotonic() > end:
            raise BenchmarkError(f"expected {times * workers} loads in the log, got {len(loads)}")
        time.sleep(0.05)
    return statistics.median(map(int, loads[-workers:]))


def pss(server: OurServer) -> int:
    """MiB of the supervisor and its workers."""
    return memory_usage([server.process, *server.process.children(recursive=True)])["pss_mib"]


def ask_all(server: OurServer, workers: int, rows: int) -> bytes:
    """Send a request over several connections to each worker; the answer, which must be the same for all."""
    outputs = [{"name": "output"}, *({"name": f"layer{layer:02}.transform_gate"} for layer in range(20))]
    request = {
        "inputs": [
            {
                "name": "x",
                "shape": [rows, NETWORK_L.inputs],
                "datatype": "FP32",
                "data": [value for row in NETWORK_L.rows[:rows] for value in row],
            }
        ],
        "outputs": outputs if rows < max(ROWS) else outputs[:1],
    }
    body = json.dumps(request).encode()
    count = CONNECTIONS * workers
    with ThreadPoolExecutor(count) as pool:
        answers = set(
            pool.map(lambda _: post(server, f"/v2/models/{NETWORK_L.name}/infer", body), range(count))
        )
    if len(answers) != 1:
        raise BenchmarkError(f"expected one answer to {rows} rows, got {len(answers)} different ones")
    return answers.pop()


def post(server: OurServer, path: str, body: bytes) -> bytes:
    """The body of an answer, without the id of its request."""
    connection = HTTPConnection(*server.address, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN_KEY}"}
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise BenchmarkError(f"{path}: expected 200, got {response.status} {content[:200]!r}")
    return content


def print_services(figures: Mapping[tuple[int, str], Sequence[ServerFigures]]) -> None:
    """Print medians over the rounds."""
    heads = ["workers", "cache", "load at start", "load again", "PSS at start", "PSS after 64 rows"]
    print(f"| {' | '.join(heads)} |\n| ---: | --- " + "| ---: " * 4 + "|")
    for (workers, form), measured in figures.items():
        start, again, *memory = (statistics.median(values) for values in zip(*measured, strict=True))
        cells = [f"{start:.0f} ms", f"{again:.0f} ms", *(f"{mib:.0f} MiB" for mib in memory)]
        print(f"| {workers} | {form} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
