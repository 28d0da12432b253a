"""What gates cost: a request for them beside a prediction, and a file with them beside one without."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import load, processes
from benchmarks.cells import Cell, measured
from benchmarks.contestants import OURS, Contestant, turnpike
from benchmarks.lines import Writer
from benchmarks.nets import BOTH, Net
from benchmarks.places import KEPT
from benchmarks.server import Server, serving

CONNECTIONS = (1, 16, 64)
PREDICTION, GATES, WITHOUT = "prediction", "gates", "prediction, no gates in the file"
# a file that turnpike did not make is served when told so
BARE = turnpike("turnpike", "--allow-unverified")


def compare(writer: Writer, *, rounds: int, seconds: int) -> None:
    """The three in turn, from two servers of which one rests."""
    load.expect_wrk()
    processes.keep_descendants()
    for net in BOTH:
        net.ensure()
        for number in range(rounds):
            with bare(net) as other, serving(OURS, net) as own, serving(other, net) as plain:
                infer = own.path("v2 JSON")
                asked = ((PREDICTION, own, infer), (GATES, own, address(infer)), (WITHOUT, plain, infer))
                for server in (own, plain):
                    measured(server, Cell("JSON", 1, 16), 1, tries=1)
                for connections in CONNECTIONS:
                    for what, server, path in asked:
                        told = {"net": net.name, "round": number, "request": what, "connections": connections}
                        writer.write({"kind": "gates", **told, **cell(server, path, connections, seconds)})


def address(infer: str) -> str:
    """Where gates are asked for: the body is that of a prediction."""
    return infer.removesuffix("/infer") + "/gates"


def cell(server: Server, path: str, connections: int, seconds: int) -> dict[str, float]:
    return measured(server, Cell("JSON", 1, connections), seconds, [path]).line()


@contextmanager
def bare(net: Net) -> Iterator[Contestant]:
    """turnpike with the file that `torch.onnx.export` writes."""
    with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
        version = Path(scratch) / net.name / "1"
        version.mkdir(parents=True)
        os.link(net.bare, version / "model.onnx")
        yield BARE.serving(Path(scratch))
