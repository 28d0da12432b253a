"""Compares turnpike with other servers of the Open Inference Protocol over gRPC, and with its own HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.comparison.tables import BLANK, TURNPIKE, describe_rounds, rate_cell, ratio_cell
from benchmarks.contestants.contestants import GRPC_CONTESTANTS, Contestant
from benchmarks.contestants.networks import NETWORK_S
from benchmarks.contestants.wire_formats import WireFormat
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.h2load import run_h2load
from benchmarks.measurement.measure import REQUEST_KINDS, Measurement, Workload, measure_load
from benchmarks.measurement.server_process import RunningServer, running_server
from benchmarks.results.results_file import ResultLine, ResultsWriter
from benchmarks.results.tables import connections_label, counted, markdown_table

# the one with many streams is what a program with a single channel sends
WORKLOADS = (
    Workload("gRPC", 1, 1),
    Workload("gRPC", 1, 16),
    Workload("gRPC", 1, 64),
    Workload("gRPC", 1, 1, streams=64),
    Workload("gRPC", 32, 16),
)
WARM_UP_SECONDS = 1


def compare_over_grpc(writer: ResultsWriter, *, rounds: int, seconds: int) -> None:
    """Measure every server in each round. A failure is recorded, and the next server is measured."""
    NETWORK_S.ensure_files()
    for round_number in range(rounds):
        for contestant in GRPC_CONTESTANTS:
            fields = {"round": round_number, "net": NETWORK_S.name}
            try:
                for measured in measure_server(contestant, seconds):
                    writer.write({"kind": "grpc", **fields, **measured})
            except BenchmarkError as error:
                failure = {"server": contestant.name, "failed": str(error)}
                writer.write({"kind": "grpc failure", **fields, **failure})


def measure_server(contestant: Contestant, seconds: int) -> Iterator[dict[str, Any]]:
    """Start a server, and measure each workload that it knows; yields the fields of their lines.

    Over HTTP/1.1 there are no streams, so that workload is left out.
    """
    with running_server(contestant, NETWORK_S) as server:
        for wire_format in contestant.paths:
            kind = REQUEST_KINDS[wire_format]
            name = contestant.name if kind == "gRPC" else f"{contestant.name}, {kind} over HTTP"
            for workload in WORKLOADS:
                if kind == "gRPC" or workload.streams == 1:
                    measurement = measure(server, wire_format, workload, seconds)
                    yield {"server": name, "request": kind, **columns(workload), **measurement.fields()}


def measure(server: RunningServer, wire_format: WireFormat, workload: Workload, seconds: int) -> Measurement:
    """Put a workload on the server; an answer is checked before it, and another after it."""
    server.check(wire_format, workload.rows)
    answer, _ = server.answer(wire_format, workload.rows)
    put_load = partial(
        run_h2load,
        server.url(wire_format),
        server.request(wire_format, workload.rows),
        connections=workload.connections,
        streams=workload.streams,
        answer_bytes=len(answer),
        http1=wire_format != "v2 gRPC",
    )
    put_load(seconds=WARM_UP_SECONDS)
    measurement = measure_load(partial(put_load, seconds=seconds))
    if measurement.load.lost or measurement.load.refused:
        raise BenchmarkError(
            f"{server.contestant.name}: expected answers to all requests, got {measurement.load}"
        )
    server.check(wire_format, workload.rows)
    return measurement


def grpc_tables(lines: Sequence[ResultLine]) -> str:
    """Medians over the rounds, medians of ratios within a round, and the servers that failed."""
    failures = dict.fromkeys(line["failed"] for line in lines if line["kind"] == "grpc failure")
    parts = [
        describe_rounds(lines, "grpc"),
        "**S, requests per second**",
        server_table(lines, rate_cell),
        "**S, requests per second of turnpike over gRPC, divided by those of the other server**",
        server_table(lines, ratio_cell),
    ]
    return "\n\n".join([*parts, *(f"Failed: {failure}." for failure in failures)])


def server_table(
    lines: Sequence[ResultLine], cell: Callable[[list[ResultLine], list[ResultLine]], str]
) -> str:
    """A row for each server and a column for each workload.

    `cell` gives the text for the lines of a server and of turnpike over gRPC for the same workload.
    """
    lines = [line for line in lines if line["kind"] == "grpc"]
    rows = []
    for server in dict.fromkeys(line["server"] for line in lines):
        row = [server]
        for workload in WORKLOADS:
            of_server, of_turnpike = (
                [line for line in lines if line.items() >= {"server": name, **columns(workload)}.items()]
                for name in (server, TURNPIKE)
            )
            row.append(cell(of_server, of_turnpike) if of_server else BLANK)
        rows.append(row)
    return markdown_table(["", *map(label, WORKLOADS)], rows)


def columns(workload: Workload) -> dict[str, int]:
    """The fields of a line that name its column."""
    return {"rows": workload.rows, "connections": workload.connections, "streams": workload.streams}


def label(workload: Workload) -> str:
    """The head of a workload's column."""
    streams = f", {workload.streams} streams" * (workload.streams > 1)
    return f"{counted(workload.rows, 'row', 's')}, {connections_label(workload.connections)}{streams}"
