"""The comparison as tables: medians of its rounds, and of ratios within a round, as machines drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.lines import Line

OURS = "turnpike"
# of a cell: what its servers are told apart by
Key = tuple[str, int, int]
BLANK = "-"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, with figures to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def comparison(lines: Sequence[Line]) -> str:
    """All that there is to say of a comparison."""
    nets = list(dict.fromkeys(line["net"] for line in lines if line["kind"] == "cell"))
    parts = [taken(lines)]
    for net in nets:
        of_net = [line for line in lines if line.get("net") == net]
        cells = [line for line in of_net if line["kind"] == "cell"]
        parts += [
            f"**{net}, requests a second**",
            of_cells(cells, lambda some, _: f"{median(line['rate'] for line in some):,.0f}"),
            f"**{net}, requests of turnpike for each of the other's**",
            of_cells(cells, ratio),
            f"**{net}, p50 / p99 in milliseconds**",
            of_cells(
                cells, lambda some, _: " / ".join(of_times(some, part) for part in ("p50_ms", "p99_ms"))
            ),
            f"**{net}, memory under load and start**",
            of_servers([line for line in of_net if line["kind"] == "server"]),
            f"**{net}, rows a second of onnxruntime without a server, and turnpike's share of the most**",
            of_ceilings(of_net, cells),
        ]
    failed = sorted({line["failed"] for line in lines if line["kind"] == "failed"})
    return "\n\n".join([*parts, *(f"Failed: {sentence}." for sentence in failed)])


def taken(lines: Sequence[Line]) -> str:
    """When, on what, how often, and what may have disturbed it."""
    cells = [line for line in lines if line["kind"] == "cell"]
    rounds = 1 + max((line["round"] for line in cells), default=-1)
    lost = sum(line["lost"] + line["refused"] for line in cells)
    others = max((line["other_cpus"] for line in cells), default=0)
    middle = median(line["other_cpus"] for line in cells) if cells else 0
    return (
        f"{taken_on(lines)} Rounds: {rounds}. Requests that were lost or refused: {lost}. Other work took "
        f"{middle:.2f} CPUs meanwhile in the middle, {others:.2f} at most."
    )


def taken_on(lines: Sequence[Line]) -> str:
    """When and on what."""
    machine = lines[0]
    return (
        f"{machine['date']}, {machine['cpus']} CPUs ({machine['cpu']}), Python {machine['python']}, "
        f"onnxruntime {machine['onnxruntime']}."
    )


def of_cells(cells: Sequence[Line], tell: Callable[[list[Line], list[Line]], str]) -> str:
    """A row a server and a column a cell; `tell` has the lines of both, the server's and ours."""
    keys = list(dict.fromkeys(key_of(line) for line in cells))
    rows = []
    for server in dict.fromkeys(line["server"] for line in cells):
        row = [server]
        for key in keys:
            some = [line for line in cells if line["server"] == server and key_of(line) == key]
            own = [line for line in cells if line["server"] == OURS and key_of(line) == key]
            row.append(tell(some, own) if some else BLANK)
        rows.append(row)
    return table(["", *(called(key) for key in keys)], rows)


def ratio(some: list[Line], own: list[Line]) -> str:
    """The median over rounds of ours by theirs."""
    theirs = {line["round"]: line["rate"] for line in some}
    found = [line["rate"] / theirs[line["round"]] for line in own if theirs.get(line["round"])]
    return f"{median(found):.2f}" if found else BLANK


def of_times(some: list[Line], part: str) -> str:
    return f"{median(line[part] for line in some):.2f}"


def of_servers(lines: Sequence[Line]) -> str:
    """Memory and start of each server."""
    rows = []
    for server in dict.fromkeys(line["server"] for line in lines):
        some = [line for line in lines if line["server"] == server]
        held = [f"{median(line[part] for line in some):,.0f}" for part in ("rss_mib", "pss_mib", "processes")]
        rows.append([server, *held, f"{median(line['started'] for line in some):.1f}"])
    return table(["", "RSS, MiB", "PSS, MiB", "processes", "start to first right answer, s"], rows)


def of_ceilings(of_net: Sequence[Line], cells: Sequence[Line]) -> str:
    """A row a shape of the ceiling, and how near our best cell of one row a request comes."""
    ceilings = [line for line in of_net if line["kind"] == "ceiling"]
    batches = list(dict.fromkeys(line["batch"] for line in ceilings))
    rows = []
    for shape in dict.fromkeys(shape_of(line) for line in ceilings):
        row = ["{}, {} processes x {} threads".format(*shape)]
        for batch in batches:
            some = [line["rows"] for line in ceilings if (shape_of(line), line["batch"]) == (shape, batch)]
            row.append(f"{median(some):,.0f}")
        rows.append(row)
    ceilings = [line for line in ceilings if line["precision"] == "fp32"]
    shares = []
    for number in sorted({line["round"] for line in ceilings}):
        most = max(line["rows"] for line in ceilings if line["round"] == number)
        own = [
            line["rate"] * line["rows"] for line in cells if (line["server"], line["round"]) == (OURS, number)
        ]
        shares += [max(own) / most] if own else []
    told = f"\n\nturnpike's best cell: {median(shares):.0%} of the most that was seen." if shares else ""
    return table(["", *(f"batch {batch}" for batch in batches)], rows) + told


def shape_of(line: Line) -> tuple[str, int, int]:
    return line["precision"], line["processes"], line["threads"]


def key_of(line: Line) -> Key:
    return line["request"], line["rows"], line["connections"]


def called(key: Key) -> str:
    """A cell, as a head of a column."""
    kind, rows, connections = key
    return f"{kind}, {rows} row{'s' * (rows > 1)}, {connections} connection{'s' * (connections > 1)}"
