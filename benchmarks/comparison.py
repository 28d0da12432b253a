"""turnpike beside its rivals and the limits: in each round all servers in turn, until the time is used up."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks import ceiling, processes
from benchmarks.cells import Cell, Kind, measured
from benchmarks.contestants import Contestant
from benchmarks.errors import BenchmarkError
from benchmarks.lines import Writer
from benchmarks.nets import BOTH, Net
from benchmarks.server import Server, serving

CELLS: dict[str, tuple[Cell, ...]] = {
    "S": (
        Cell("JSON", 1, 1),
        Cell("JSON", 1, 16),
        Cell("JSON", 1, 64),
        Cell("JSON", 32, 16),
        Cell("binary", 32, 16),
    ),
    "L": (Cell("JSON", 1, 1), Cell("JSON", 1, 16), Cell("JSON", 1, 64)),
}
BATCHES = (1, 8, 32, 128)
SHAPES = ((2, 1), (1, 2))  # processes and threads of the ceiling
CEILING_SECONDS = 0.4


def compare(contestants: Sequence[Contestant], writer: Writer, *, minutes: float, seconds: int) -> None:
    """Round after round while there is time for another, but one at least."""
    until = time.monotonic() + 60 * minutes
    for net in BOTH:
        net.ensure()
    there = [one for one in contestants if has_python(one, writer)]
    number, longest = 0, 0.0
    while number == 0 or time.monotonic() + longest < until:
        begun = time.monotonic()
        measure_round(there, writer, number, seconds)
        longest = max(longest, time.monotonic() - begun)
        number += 1
    print(f"{number} rounds of {longest:.0f} s", file=sys.stderr)


def has_python(one: Contestant, writer: Writer) -> bool:
    """Whether it can be started; a rival that cannot be had here is told of and left out."""
    try:
        one.python()
    except BenchmarkError as error:
        writer.write({"kind": "failed", "server": one.name, "failed": str(error)})
        return False
    return True


def measure_round(contestants: Sequence[Contestant], writer: Writer, number: int, seconds: int) -> None:
    """Every server with every cell, and the ceiling."""
    for net in BOTH:
        for precision, (workers, threads) in product(net.precisions, SHAPES):
            told: dict[str, Any] = {"processes": workers, "threads": threads, "precision": precision}
            found = ceiling.rates(net, BATCHES, seconds=CEILING_SECONDS, **told)
            for batch, rows in found.items():
                line = {"kind": "ceiling", "round": number, "net": net.name, "batch": batch, **told}
                writer.write({**line, "rows": round(rows, 1)})
        for one in contestants:
            if net.name in one.nets:
                measure_server(one, net, writer, number, seconds)


def measure_server(one: Contestant, net: Net, writer: Writer, number: int, seconds: int) -> None:
    """One start: its answers checked, its cells measured, its memory; a failure is a line and no end."""
    base: dict[str, Any] = {"round": number, "server": one.name, "net": net.name}
    try:
        with serving(one, net) as server:
            warmed: set[Kind] = set()
            for cell in CELLS[net.name]:
                if cell.form(list(one.forms)) is not None:
                    writer.write({"kind": "cell", **base, **measure_cell(server, cell, seconds, warmed)})
            held = processes.memory(processes.descendants())
            writer.write({"kind": "server", **base, "started": round(server.started, 2), **held})
    except BenchmarkError as error:
        writer.write({"kind": "failed", **base, "failed": str(error)})


def measure_cell(server: Server, cell: Cell, seconds: int, warmed: set[Kind]) -> dict[str, Any]:
    """The line of a cell; the first of its kind is tried before."""
    form = cell.form(list(server.contestant.forms))
    assert form is not None
    server.check(form, cell.rows)
    if cell.kind not in warmed:
        measured(server, Cell(cell.kind, cell.rows, 16), 1, tries=1)
        warmed.add(cell.kind)
    asked = {"request": cell.kind, "rows": cell.rows, "connections": cell.connections}
    return asked | measured(server, cell, seconds).line()
