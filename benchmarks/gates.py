"""What gates cost: a request for them beside a prediction, and a file with them beside one without."""

from __future__ import annotations

from benchmarks.cells import Cell, measured
from benchmarks.contestants import OURS, turnpike
from benchmarks.folder import folder_of
from benchmarks.lines import Writer
from benchmarks.nets import BOTH
from benchmarks.server import Server, serving

CONNECTIONS = (1, 16, 64)
PREDICTION, GATES, WITHOUT = "prediction", "gates", "prediction, no gates in the file"
# a file that turnpike did not make is served when told so
BARE = turnpike("turnpike", "--allow-unverified")


def compare(writer: Writer, *, rounds: int, seconds: int) -> None:
    """The three in turn, from two servers of which one rests."""
    for net in BOTH:
        net.ensure()
        for number in range(rounds):
            with (
                folder_of({net.name: net.bare}) as folder,
                serving(OURS, net) as own,
                serving(BARE.serving(folder), net) as plain,
            ):
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
