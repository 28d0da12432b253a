"""One measurement: a form of request, rows in it and connections; repeated where others disturbed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks import bodies, load, processes
from benchmarks.bodies import Form
from benchmarks.load import Load
from benchmarks.server import Server

# how many CPUs others may use while something is measured, and how often it is tried to catch them at rest
QUIET, TRIES = 0.25, 3

Kind = Literal["JSON", "binary"]


@dataclass(frozen=True)
class Cell:
    """What is asked of a server; JSON is of the form that each server has."""

    kind: Kind
    rows: int
    connections: int

    def form(self, forms: Sequence[Form]) -> Form | None:
        """The wire form of those a server knows, or None."""
        fitting = [form for form in forms if (form == "v2 binary") == (self.kind == "binary")]
        return fitting[0] if fitting else None


@dataclass(frozen=True)
class Measured:
    """A load, the CPUs that the server's processes and wrk used, and those that others used meanwhile."""

    load: Load
    server_cpus: float
    load_cpus: float
    other_cpus: float

    def line(self) -> dict[str, Any]:
        """As it is kept."""
        kept = asdict(self.load) | {"rate": self.load.rate}
        cpus = {"server_cpus": self.server_cpus, "load_cpus": self.load_cpus, "other_cpus": self.other_cpus}
        return {name: round(value, 3) for name, value in (kept | cpus).items()}


def measured(
    server: Server, cell: Cell, seconds: int, paths: Sequence[str] = (), tries: int = TRIES
) -> Measured:
    """The quietest of some tries, of which the first that is quiet is the last."""
    form = cell.form(list(server.contestant.forms))
    assert form is not None
    request = bodies.request(form, server.net.rows[: cell.rows])
    best: Measured | None = None
    for _ in range(tries):
        others = processes.descendants()
        before = processes.cpu_seconds(others), processes.own_seconds(), processes.machine_seconds()
        came = load.drive(server.port, paths or [server.path(form)], request, cell.connections, seconds)
        after = processes.cpu_seconds(others), processes.own_seconds(), processes.machine_seconds()
        served, loaded, all_in_all = ((b - a) / came.seconds for a, b in zip(before, after, strict=True))
        now = Measured(came, served, loaded, max(0.0, all_in_all - served - loaded))
        if best is None or now.other_cpus < best.other_cpus:
            best = now
        if best.other_cpus < QUIET:
            break
    assert best is not None
    return best
