"""How the cost of a request grows with rows, connections, depth, width and models, beside how it should.

One worker of one thread, so that a request's cost is what the worker's CPU spends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks import ceiling, processes
from benchmarks.cells import Cell, Measured, measured
from benchmarks.contestants import FLOOR, turnpike
from benchmarks.folder import folder_of
from benchmarks.lines import Writer
from benchmarks.nets import Net, S
from benchmarks.server import serving
from service.artifact.limits import MAX_ROWS

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS = (5, 10, 20, 40, 80)
WIDTHS = (32, 64, 128, 256, 512, 1024)
MODELS = (1, 10, 100)

# where connections are not what grows
USUAL = 16
CEILING_SECONDS = 0.3
ONE = turnpike("turnpike", workers=1)
ALONE = turnpike("turnpike", "--max-batch", "1", workers=1)
FLOOR_OF_ONE = replace(FLOOR, workers=1)

Measure = Callable[[Writer, int, int], None]


def grow(writer: Writer, *, rounds: int, seconds: int, only: str | None = None) -> None:
    """Each growth in turn, so many times."""
    chosen = [GROWTHS[only]] if only else list(GROWTHS.values())
    for number in range(rounds):
        for measure in chosen:
            measure(writer, number, seconds)


def rows(writer: Writer, number: int, seconds: int) -> None:
    S.ensure()
    with serving(ONE, S) as server:
        for size in ROWS:
            for kind in ("JSON", "binary"):
                cell = Cell("JSON" if kind == "JSON" else "binary", size, USUAL)
                server.check("v2 JSON" if kind == "JSON" else "v2 binary", size)
                came = measured(server, cell, seconds)
                tell(writer, f"rows, {kind}", size, number, came, **runs(S, size))


def connections(writer: Writer, number: int, seconds: int) -> None:
    S.ensure()
    floors = {}
    with serving(FLOOR_OF_ONE, S) as server:
        for size in CONNECTIONS:
            floors[size] = measured(server, Cell("JSON", 1, size), seconds)
    with serving(ONE, S) as server:
        for size in CONNECTIONS:
            came, floor = measured(server, Cell("JSON", 1, size), seconds), floors[size]
            tell(writer, "connections", size, number, came, floor_rate=floor.load.rate, floor_us=spent(floor))


def depth(writer: Writer, number: int, seconds: int) -> None:
    for size in DEPTHS:
        of_net(writer, "depth", size, Net(f"depth-{size}", width=64, layers=size), number, seconds)


def width(writer: Writer, number: int, seconds: int) -> None:
    for size in WIDTHS:
        of_net(writer, "width", size, Net(f"width-{size}", width=size, layers=10), number, seconds)


def of_net(writer: Writer, what: str, size: int, net: Net, number: int, seconds: int) -> None:
    """One row a request of a network that has grown."""
    net.ensure()
    with serving(ONE, net) as server:
        server.check("v2 JSON", 1)
        measured(server, Cell("JSON", 1, USUAL), 1, tries=1)
        came = measured(server, Cell("JSON", 1, USUAL), seconds)
    tell(writer, what, size, number, came, **runs(net, 1))


def models(writer: Writer, number: int, seconds: int) -> None:
    """Requests spread over all models evenly, beside one model that has no company for its rows, either."""
    S.ensure()
    with serving(ALONE, S) as server:
        measured(server, Cell("JSON", 1, USUAL), 1, tries=1)
        single = measured(server, Cell("JSON", 1, USUAL), seconds)
    for size in MODELS:
        with (
            folder_of(dict.fromkeys(names(size), S.exported())) as folder,
            serving(ONE.serving(folder), S) as server,
        ):
            paths = [server.path("v2 JSON").replace("/S/", f"/{name}/") for name in names(size)]
            measured(server, Cell("JSON", 1, USUAL), 1, paths, tries=1)
            came = measured(server, Cell("JSON", 1, USUAL), seconds, paths)
            held = processes.memory(processes.descendants())
        found = ceiling.rates(S, [1], processes=1, threads=1, seconds=CEILING_SECONDS, sessions=size)
        told = {"started": server.started, "rss_mib": held["rss_mib"], "alone_us": 1e6 / found[1]}
        tell(writer, "models", size, number, came, single_us=spent(single), **told)


def names(count: int) -> list[str]:
    return ["S", *(f"S-{number}" for number in range(1, count))]


def runs(net: Net, rows: int) -> dict[str, float]:
    """What onnxruntime needs for a request, in µs: by itself, and in the fullest run that there can be."""
    full = max(rows, min(MAX_ROWS, rows * USUAL) // rows * rows)
    found = ceiling.rates(net, sorted({rows, full}), processes=1, threads=1, seconds=CEILING_SECONDS)
    return {"alone_us": 1e6 * rows / found[rows], "company_us": 1e6 * rows / found[full]}


def spent(came: Measured) -> float:
    """The server's CPU for a request, in µs."""
    return 1e6 * came.server_cpus / came.load.rate


def tell(writer: Writer, what: str, size: int, number: int, came: Measured, **more: Any) -> None:
    asked = {"kind": "growth", "what": what, "size": size, "round": number}
    beside = {name: round(value, 2) for name, value in more.items()}
    writer.write({**asked, **came.line(), "cpu_us": round(spent(came), 2), **beside})


GROWTHS: dict[str, Measure] = {
    "rows": rows,
    "connections": connections,
    "depth": depth,
    "width": width,
    "models": models,
}
