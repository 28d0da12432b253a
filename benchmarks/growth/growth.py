"""Measures how the cost of a request grows with rows, connections, depth, width and number of models.

One worker of one thread serves, so that the CPU time of the worker is the cost of its requests. Each point is
compared with what it should cost at least: onnxruntime's runs, or the floor of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.contestants.contestants import FLOOR, turnpike
from benchmarks.contestants.networks import NETWORK_S, BenchmarkNetwork
from benchmarks.folders import linked_models
from benchmarks.measurement import onnxruntime_ceiling, processes
from benchmarks.measurement.measure import Measurement, Workload, measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.results.results_file import ResultsWriter
from turnpike.service.artifact.limits import MAX_ROWS

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS = (5, 10, 20, 40, 80)
WIDTHS = (32, 64, 128, 256, 512, 1024)
MODELS = (1, 10, 100)

# connections in benchmarks in which something else grows
DEFAULT_CONNECTIONS = 16
CEILING_SECONDS = 0.3
ONE_WORKER = turnpike("turnpike", workers=1)
UNBATCHED = turnpike("turnpike", "--max-batch", "1", workers=1)
FLOOR_ONE_WORKER = replace(FLOOR, workers=1)

# measures all points of one growth, with the number of the round and the seconds of each measurement
MeasureGrowth = Callable[[ResultsWriter, int, int], None]


def measure_growths(writer: ResultsWriter, *, rounds: int, seconds: int, only: str | None = None) -> None:
    """Measure every growth, or `only` one of them, in each round."""
    selected = [GROWTHS[only]] if only else list(GROWTHS.values())
    for round_number in range(rounds):
        for measure_growth in selected:
            measure_growth(writer, round_number, seconds)


def measure_rows(writer: ResultsWriter, round_number: int, seconds: int) -> None:
    NETWORK_S.ensure_files()
    with running_server(ONE_WORKER, NETWORK_S) as server:
        for rows in ROWS:
            for workload in (
                Workload("JSON", rows, DEFAULT_CONNECTIONS),
                Workload("binary", rows, DEFAULT_CONNECTIONS),
            ):
                server.check("v2 JSON" if workload.kind == "JSON" else "v2 binary", rows)
                measured = measure(server, workload, seconds)
                reference = run_times(NETWORK_S, rows)
                write_point(writer, f"rows, {workload.kind}", rows, round_number, measured, **reference)


def measure_connections(writer: ResultsWriter, round_number: int, seconds: int) -> None:
    NETWORK_S.ensure_files()
    floors = {}
    with running_server(FLOOR_ONE_WORKER, NETWORK_S) as server:
        for connections in CONNECTIONS:
            floors[connections] = measure(server, Workload("JSON", 1, connections), seconds)
    with running_server(ONE_WORKER, NETWORK_S) as server:
        for connections in CONNECTIONS:
            measured = measure(server, Workload("JSON", 1, connections), seconds)
            floor = floors[connections]
            reference = {"floor_rate": floor.load.rate, "floor_us": server_cpu_us(floor)}
            write_point(writer, "connections", connections, round_number, measured, **reference)


def measure_depth(writer: ResultsWriter, round_number: int, seconds: int) -> None:
    for depth in DEPTHS:
        network = BenchmarkNetwork(f"depth-{depth}", width=64, layers=depth)
        measure_network(writer, "depth", depth, network, round_number, seconds)


def measure_width(writer: ResultsWriter, round_number: int, seconds: int) -> None:
    for width in WIDTHS:
        network = BenchmarkNetwork(f"width-{width}", width=width, layers=10)
        measure_network(writer, "width", width, network, round_number, seconds)


def measure_network(
    writer: ResultsWriter,
    growth: str,
    size: int,
    network: BenchmarkNetwork,
    round_number: int,
    seconds: int,
) -> None:
    """Measure requests of one row for a network of one size.

    Arguments:
        writer: the results file
        growth: what grows, "depth" or "width"
        size: its value
        network: the network of this size
        round_number: the number of the round
        seconds: duration of the measurement
    """
    network.ensure_files()
    workload = Workload("JSON", 1, DEFAULT_CONNECTIONS)
    with running_server(ONE_WORKER, network) as server:
        server.check("v2 JSON", 1)
        warm_up(server, workload)
        measured = measure(server, workload, seconds)
    write_point(writer, growth, size, round_number, measured, **run_times(network, 1))


def measure_models(writer: ResultsWriter, round_number: int, seconds: int) -> None:
    """Measure requests to all models in turn, compared with one model whose runs have one request each."""
    NETWORK_S.ensure_files()
    workload = Workload("JSON", 1, DEFAULT_CONNECTIONS)
    with running_server(UNBATCHED, NETWORK_S) as server:
        warm_up(server, workload)
        unbatched = measure(server, workload, seconds)
    for count in MODELS:
        names = model_names(count)
        with (
            linked_models(dict.fromkeys(names, NETWORK_S.exported_file())) as models,
            running_server(ONE_WORKER.with_models(models), NETWORK_S) as server,
        ):
            paths = [server.path("v2 JSON").replace("/S/", f"/{name}/") for name in names]
            warm_up(server, workload, paths)
            measured = measure(server, workload, seconds, paths)
            memory = processes.memory_usage(processes.descendants())
        rates = onnxruntime_ceiling.measure_ceiling(
            NETWORK_S, [1], processes=1, threads=1, seconds=CEILING_SECONDS, sessions=count
        )
        reference = {
            "single_us": server_cpu_us(unbatched),
            "started": server.start_seconds,
            "rss_mib": memory["rss_mib"],
            "alone_us": 1e6 / rates[1],
        }
        write_point(writer, "models", count, round_number, measured, **reference)


def model_names(count: int) -> list[str]:
    return ["S", *(f"S-{number}" for number in range(1, count))]


def run_times(network: BenchmarkNetwork, rows: int) -> dict[str, float]:
    """onnxruntime's microseconds per request: `alone_us` if a run has one request, `company_us` in full runs.

    A full run has the rows of all requests that are open at a time, as far as they fit into a run.
    """
    full_run = max(rows, min(MAX_ROWS, rows * DEFAULT_CONNECTIONS) // rows * rows)
    rates = onnxruntime_ceiling.measure_ceiling(
        network, sorted({rows, full_run}), processes=1, threads=1, seconds=CEILING_SECONDS
    )
    return {"alone_us": 1e6 * rows / rates[rows], "company_us": 1e6 * rows / rates[full_run]}


def server_cpu_us(measured: Measurement) -> float:
    """CPU time of the server for one request, in microseconds."""
    return 1e6 * measured.server_cpus / measured.load.rate


def write_point(
    writer: ResultsWriter,
    growth: str,
    size: int,
    round_number: int,
    measured: Measurement,
    **reference: Any,
) -> None:
    """Write the line of one point; `reference` has the figures that it is compared with."""
    fields = {"kind": "growth", "what": growth, "size": size, "round": round_number}
    rounded = {name: round(value, 2) for name, value in reference.items()}
    writer.write({**fields, **measured.fields(), "cpu_us": round(server_cpu_us(measured), 2), **rounded})


GROWTHS: dict[str, MeasureGrowth] = {
    "rows": measure_rows,
    "connections": measure_connections,
    "depth": measure_depth,
    "width": measure_width,
    "models": measure_models,
}
