"""Measures what gates cost: requests for gates, predictions, and predictions by a file without gates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.contestants.contestants import TURNPIKE, turnpike
from benchmarks.contestants.networks import NETWORKS
from benchmarks.folders import linked_models
from benchmarks.measurement.measure import Workload, measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.results.results_file import ResultLine, ResultsWriter
from benchmarks.results.tables import connections_label, markdown_table

CONNECTIONS = (1, 16, 64)
# what is measured, by its name in results
PREDICTION = "prediction"
GATES = "gates"
WITHOUT_GATES = "prediction, no gates in the file"
# a file that was not exported by turnpike has no proof
TURNPIKE_UNVERIFIED = turnpike("turnpike", "--allow-unverified")


def measure_gates(writer: ResultsWriter, *, rounds: int, seconds: int) -> None:
    """Measure the three in turn, on two servers of which one is idle."""
    for network in NETWORKS:
        network.ensure_files()
        for round_number in range(rounds):
            with (
                linked_models({network.name: network.bare_file}) as bare_models,
                running_server(TURNPIKE, network) as server,
                running_server(TURNPIKE_UNVERIFIED.with_models(bare_models), network) as bare_server,
            ):
                infer = server.path("v2 JSON")
                requests = (
                    (PREDICTION, server, infer),
                    (GATES, server, gates_path(infer)),
                    (WITHOUT_GATES, bare_server, infer),
                )
                for either in (server, bare_server):
                    warm_up(either, Workload("JSON", 1, 16))
                for connections in CONNECTIONS:
                    for name, target, path in requests:
                        measured = measure(target, Workload("JSON", 1, connections), seconds, [path])
                        fields = {"net": network.name, "round": round_number, "request": name}
                        fields |= {"connections": connections}
                        writer.write({"kind": "gates", **fields, **measured.fields()})


def gates_path(infer: str) -> str:
    """The path for gates, whose requests have the same body as those for predictions."""
    return infer.removesuffix("/infer") + "/gates"


def gates_table(lines: Sequence[ResultLine]) -> str:
    """Requests per second, and in brackets the time relative to a prediction, by number of connections."""
    lines = [line for line in lines if line["kind"] == "gates"]
    connections = sorted({line["connections"] for line in lines})
    rows = []
    for network in dict.fromkeys(line["net"] for line in lines):
        for request in (PREDICTION, GATES, WITHOUT_GATES):
            row = [f"{network}, {request}"]
            for count in connections:
                rates = rates_by_round(lines, network, request, count)
                prediction_rates = rates_by_round(lines, network, PREDICTION, count)
                cost = median(prediction_rates[number] / rate for number, rate in rates.items())
                row.append(f"{median(rates.values()):,.0f} ({cost:.2f})")
            rows.append(row)
    return markdown_table(
        ["requests/s (relative time)", *(connections_label(count) for count in connections)], rows
    )


def rates_by_round(
    lines: Sequence[ResultLine], network: str, request: str, connections: int
) -> dict[int, float]:
    """Requests per second by number of the round."""
    key = (network, request, connections)
    return {
        line["round"]: line["rate"]
        for line in lines
        if (line["net"], line["request"], line["connections"]) == key
    }
