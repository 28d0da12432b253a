"""Tables of the comparison: medians over the rounds, and medians of ratios within a round.

Ratios are taken within a round because the speed of machines drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.results.results_file import ResultLine
from benchmarks.results.tables import connections_label, counted, describe_measurement, markdown_table

TURNPIKE = "turnpike"
# kind of request, rows in each, connections
WorkloadKey = tuple[str, int, int]
# the cell of a server that does not support a workload
BLANK = "-"


def comparison(lines: Sequence[ResultLine]) -> str:
    """All tables of a comparison, and the servers that failed."""
    networks = list(dict.fromkeys(line["net"] for line in lines if line["kind"] == "cell"))
    parts = [describe_rounds(lines)]
    for network in networks:
        network_lines = [line for line in lines if line.get("net") == network]
        workload_lines = [line for line in network_lines if line["kind"] == "cell"]
        server_lines = [line for line in network_lines if line["kind"] == "server"]
        parts += [
            f"**{network}, requests per second**",
            server_table(workload_lines, rate_cell),
            f"**{network}, requests per second of turnpike, divided by those of the other server**",
            server_table(workload_lines, ratio_cell),
            f"**{network}, p50 / p99 in milliseconds**",
            server_table(workload_lines, latency_cell),
            f"**{network}, memory under load, and time to start**",
            memory_table(server_lines),
            f"**{network}, rows per second of onnxruntime without a server, and turnpike's share**",
            ceiling_table(network_lines, workload_lines),
        ]
    failures = sorted({line["failed"] for line in lines if line["kind"] == "failed"})
    return "\n\n".join([*parts, *(f"Failed: {failure}." for failure in failures)])


def describe_rounds(lines: Sequence[ResultLine], kind: str = "cell") -> str:
    """Date and machine, the number of rounds in lines of this kind, and figures that show disturbances."""
    workload_lines = [line for line in lines if line["kind"] == kind]
    rounds = 1 + max((line["round"] for line in workload_lines), default=-1)
    failed_requests = sum(line["lost"] + line["refused"] for line in workload_lines)
    other_cpus = [line["other_cpus"] for line in workload_lines] or [0]
    return (
        f"{describe_measurement(lines)} Rounds: {rounds}. Requests that were lost or refused: "
        f"{failed_requests}. Other processes used {median(other_cpus):.2f} CPUs (median), "
        f"{max(other_cpus):.2f} at most."
    )


def server_table(
    lines: Sequence[ResultLine], cell: Callable[[list[ResultLine], list[ResultLine]], str]
) -> str:
    """A row for each server and a column for each workload.

    `cell` gives the text for the lines of a server and of turnpike for the same workload.
    """
    keys = list(dict.fromkeys(workload_key(line) for line in lines))
    rows = []
    for server in dict.fromkeys(line["server"] for line in lines):
        row = [server]
        for key in keys:
            of_server, of_turnpike = (
                [line for line in lines if (line["server"], workload_key(line)) == (name, key)]
                for name in (server, TURNPIKE)
            )
            row.append(cell(of_server, of_turnpike) if of_server else BLANK)
        rows.append(row)
    return markdown_table(["", *(workload_label(key) for key in keys)], rows)


def rate_cell(of_server: list[ResultLine], _: list[ResultLine]) -> str:
    """Requests per second."""
    return f"{median(line['rate'] for line in of_server):,.0f}"


def ratio_cell(of_server: list[ResultLine], of_turnpike: list[ResultLine]) -> str:
    """turnpike's rate divided by the server's, the median over the rounds that have both."""
    rates = {line["round"]: line["rate"] for line in of_server}
    ratios = [line["rate"] / rates[line["round"]] for line in of_turnpike if rates.get(line["round"])]
    return f"{median(ratios):.2f}" if ratios else BLANK


def latency_cell(of_server: list[ResultLine], _: list[ResultLine]) -> str:
    """Median and 99th percentile in milliseconds."""
    return " / ".join(f"{median(line[field] for line in of_server):.2f}" for field in ("p50_ms", "p99_ms"))


def memory_table(lines: Sequence[ResultLine]) -> str:
    """Memory, processes and start of each server."""
    rows = []
    for server in dict.fromkeys(line["server"] for line in lines):
        starts = [line for line in lines if line["server"] == server]
        memory = [
            f"{median(line[field] for line in starts):,.0f}" for field in ("rss_mib", "pss_mib", "processes")
        ]
        rows.append([server, *memory, f"{median(line['started'] for line in starts):.1f}"])
    return markdown_table(["", "RSS, MiB", "PSS, MiB", "processes", "start to first correct answer, s"], rows)


def ceiling_table(network_lines: Sequence[ResultLine], workload_lines: Sequence[ResultLine]) -> str:
    """A row for each number of processes and threads, and a sentence with turnpike's share of the best."""
    ceilings = [line for line in network_lines if line["kind"] == "ceiling"]
    batches = list(dict.fromkeys(line["batch"] for line in ceilings))
    rows = []
    for shape in dict.fromkeys(ceiling_shape(line) for line in ceilings):
        precision, processes, threads = shape
        row = [f"{precision}, {counted(processes, 'process', 'es')} x {counted(threads, 'thread', 's')}"]
        for batch in batches:
            rates = [
                line["rows"] for line in ceilings if (ceiling_shape(line), line["batch"]) == (shape, batch)
            ]
            row.append(f"{median(rates):,.0f}")
        rows.append(row)
    table = markdown_table(["", *(f"batch {batch}" for batch in batches)], rows)

    # turnpike's share of the highest rate, within each round
    ceilings = [line for line in ceilings if line["precision"] == "fp32"]
    shares = []
    for round_number in sorted({line["round"] for line in ceilings}):
        highest = max(line["rows"] for line in ceilings if line["round"] == round_number)
        row_rates = [
            line["rate"] * line["rows"]
            for line in workload_lines
            if (line["server"], line["round"]) == (TURNPIKE, round_number)
        ]
        shares += [max(row_rates) / highest] if row_rates else []
    if not shares:
        return table
    return (
        f"{table}\n\nThe best workload of turnpike reached {median(shares):.0%} of the highest rate measured."
    )


def ceiling_shape(line: ResultLine) -> tuple[str, int, int]:
    return line["precision"], line["processes"], line["threads"]


def workload_key(line: ResultLine) -> WorkloadKey:
    return line["request"], line["rows"], line["connections"]


def workload_label(key: WorkloadKey) -> str:
    """The head of a workload's column."""
    request, rows, connections = key
    return f"{request}, {counted(rows, 'row', 's')}, {connections_label(connections)}"
