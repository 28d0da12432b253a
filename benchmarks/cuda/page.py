"""Tables of the results of a GPU, and their place on the page docs/how-to/cuda.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cuda import onnxruntime_run
from benchmarks.cuda.answers import REQUESTS
from benchmarks.errors import BenchmarkError
from benchmarks.folders import DOCS, RESULTS
from benchmarks.results.pages import replace_block
from benchmarks.results.results_file import ResultLine, read_results
from benchmarks.results.tables import (
    connections_label,
    counted,
    describe_measurement,
    markdown_table,
)

CUDA_PAGE = DOCS / "how-to" / "cuda.md"
CUDA_RESULTS = RESULTS / "cuda.jsonl"
BLOCK = "cuda"
KINDS = frozenset({"verified", "answers", "way", "load"})
# the cell of what was not measured, and of what failed
BLANK, FAILED = "-", "failed"

NOT_MEASURED = (
    "**These figures have not been measured yet: no GPU was available.** `make cuda` measures them and "
    "writes this section."
)
REHEARSAL = (
    "**This is a rehearsal on the CPU.** It shows that `make cuda` runs to its end. Its figures say nothing "
    "about a GPU."
)


def write_cuda_page(page: Path = CUDA_PAGE, results: Path = CUDA_RESULTS) -> None:
    """Write the figures of a results file into the page; without the file, say that there are none."""
    lines = read_results(results) if results.exists() else None
    if lines is not None and is_rehearsal(lines) and page == CUDA_PAGE:
        raise BenchmarkError(f"{results}: expected the results of a GPU, got those of a rehearsal")
    replace_block(page, BLOCK, NOT_MEASURED if lines is None else cuda_tables(lines))


def is_rehearsal(lines: Sequence[ResultLine]) -> bool:
    return any(line["kind"] == "device" and line["device"] != "cuda" for line in lines)


def failures(lines: Sequence[ResultLine]) -> list[str]:
    """What failed, in the order of the results."""
    return list(dict.fromkeys(str(line["failed"]) for line in lines if "failed" in line))


def cuda_tables(lines: Sequence[ResultLine]) -> str:
    """All tables, with what was measured on before them and what failed after them."""
    parts = [REHEARSAL] if is_rehearsal(lines) else []
    gpus = [line["gpu"] for line in lines if line["kind"] == "device" and line["gpu"]]
    parts += [" ".join([*(f"{gpu}." for gpu in gpus), describe_measurement(lines)])]
    parts += [describe_pytorch(line) for line in lines if line["kind"] == "pytorch"]
    by_kind = {kind: [line for line in lines if line["kind"] == kind] for kind in KINDS}
    if by_kind["verified"]:
        parts += ["**Proof on the device, by family of networks**", proof_table(by_kind["verified"])]
    if by_kind["answers"]:
        parts += [
            "**Largest difference between answers and those on the CPU, as a share of what parity allows**",
            answers_table(by_kind["answers"]),
        ]
    speed_lines = [*by_kind["way"], *by_kind["load"]]
    for network, precision in dict.fromkeys((line["net"], line["precision"]) for line in speed_lines):
        ways, loads = (
            [line for line in by_kind[kind] if (line["net"], line["precision"]) == (network, precision)]
            for kind in ("way", "load")
        )
        title = f"{network} in {precision}"
        parts += [
            f"**{title}, rows per second in one process**",
            speed_table(ways, "way", "rows", rows_label, lambda line: f"{line['rows_per_second']:,.0f}"),
            f"**{title}, p50 / p99 of a run in milliseconds**",
            speed_table(ways, "way", "rows", rows_label, latency_cell),
            f"**{title}, time of a run in the service, divided by that of other ways to run onnxruntime**",
            speed_table(gains(ways), "way", "rows", rows_label, lambda line: f"{line['gain']:.2f}"),
            f"**{title}, requests of one row per second over HTTP**",
            speed_table(
                loads, "server", "connections", connections_label, lambda line: f"{line['rate']:,.0f}"
            ),
            f"**{title}, p50 / p99 of a request in milliseconds**",
            speed_table(loads, "server", "connections", connections_label, latency_cell),
        ]
    return "\n\n".join([*parts, *(f"Failed: {failure}." for failure in failures(lines))])


def describe_pytorch(line: ResultLine) -> str:
    if line["runs"]:
        return f"PyTorch {line['version']}."
    return f"PyTorch was left out of the measurement, because its build {line['version']} has no CUDA."


def proof_table(lines: Sequence[ResultLine]) -> str:
    """A row for each file: tensors, and the error of the output or how it compares with fp32."""
    head = ["file", "tensors", "largest error of the output", "that of PyTorch", "compared with fp32"]
    rows = []
    for line in lines:
        if "failed" in line:
            cells = [FAILED, BLANK, BLANK, BLANK]
        elif line["comparison"] is None:
            cells = [str(line["tensors"]), f"{line['error']:.1e}", f"{line['torch_error']:.1e}", BLANK]
        else:
            # the errors are those of the network in fp32; the text begins with the precision
            cells = [str(line["tensors"]), BLANK, BLANK, line["comparison"].partition(": ")[2]]
        rows.append([f"{line['net']}, {line['precision']}", *cells])
    return markdown_table(head, rows)


def answers_table(lines: Sequence[ResultLine]) -> str:
    """A row for each file, and a column for each kind of request."""
    rows = []
    for network, precision in dict.fromkeys((line["net"], line["precision"]) for line in lines):
        shares = {
            line["request"]: f"{line['share']:.2f}"
            for line in lines
            if (line["net"], line["precision"]) == (network, precision) and "request" in line
        }
        rows.append([f"{network}, {precision}", *(shares.get(request, FAILED) for request in REQUESTS)])
    return markdown_table(["file", *REQUESTS], rows)


def speed_table(
    lines: Sequence[ResultLine],
    row: str,
    column: str,
    label: Callable[[int], str],
    cell: Callable[[ResultLine], str],
) -> str:
    """A table of one figure, with a row and a column for each value of two fields."""
    columns = sorted({line[column] for line in lines if column in line})
    rows = []
    for name in dict.fromkeys(line[row] for line in lines):
        by_column = {line[column]: line for line in lines if line[row] == name and column in line}
        blank = FAILED if any("failed" in line for line in lines if line[row] == name) else BLANK
        rows.append([name, *(cell(by_column[key]) if key in by_column else blank for key in columns)])
    return markdown_table(["", *map(label, columns)], rows)


def gains(lines: Sequence[ResultLine]) -> list[ResultLine]:
    """What the service would gain: how many times longer its runs take than those of other ways."""
    times = {
        (line["way"], line["rows"]): line["p50_ms"]
        for line in lines
        if line["way"] in onnxruntime_run.WAYS and "rows" in line
    }
    return [
        {"way": way, "rows": rows, "gain": times[onnxruntime_run.SERVICE, rows] / time}
        for (way, rows), time in times.items()
        if way != onnxruntime_run.SERVICE and (onnxruntime_run.SERVICE, rows) in times
    ]


def latency_cell(line: ResultLine) -> str:
    return f"{line['p50_ms']:.2f} / {line['p99_ms']:.2f}"


def rows_label(rows: int) -> str:
    return counted(rows, "row", "s")
