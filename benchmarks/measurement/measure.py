"""Measures one workload on a running server, again if other processes used the CPUs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.contestants.wire_formats import WireFormat
from benchmarks.measurement import processes, wrk
from benchmarks.measurement.server_process import RunningServer
from benchmarks.measurement.wrk import Load

# CPUs that other processes may use during a measurement before it is repeated
MAX_OTHER_CPUS = 0.25
# measurements of a workload, of which the quietest counts
MAX_ATTEMPTS = 3

RequestKind = Literal["JSON", "binary", "gRPC"]
# the wire formats of each kind; all others are JSON
REQUEST_KINDS: Mapping[WireFormat, RequestKind] = {"v2 binary": "binary", "v2 gRPC": "gRPC"}


@dataclass(frozen=True)
class Workload:
    """The load on a server: the kind of request, rows in each, and connections that send them.

    Over gRPC, each connection sends as many requests at a time as it has streams.
    """

    kind: RequestKind
    rows: int
    connections: int
    streams: int = 1

    def wire_format(self, known: Sequence[WireFormat]) -> WireFormat | None:
        """The first wire format that is of this kind among those that a server knows, or None."""
        return next((name for name in known if REQUEST_KINDS.get(name, "JSON") == self.kind), None)


@dataclass(frozen=True)
class Measurement:
    """The result of a load, with the CPUs used by the server, by the load generator and by others."""

    load: Load
    server_cpus: float
    load_cpus: float
    other_cpus: float

    def fields(self) -> dict[str, Any]:
        """Its fields in a results file."""
        load = asdict(self.load) | {"rate": self.load.rate}
        cpus = {"server_cpus": self.server_cpus, "load_cpus": self.load_cpus, "other_cpus": self.other_cpus}
        return {name: round(value, 3) for name, value in (load | cpus).items()}


def measure(
    server: RunningServer,
    workload: Workload,
    seconds: int,
    paths: Sequence[str] = (),
    max_attempts: int = MAX_ATTEMPTS,
) -> Measurement:
    """Put the workload on the server; the quietest measurement counts.

    Arguments:
        server: the running server
        workload: requests and connections
        seconds: duration of each attempt
        paths: where requests go in turn, instead of the server's path for predictions
        max_attempts: most attempts, if other processes use MAX_OTHER_CPUS or more in each
    """
    wire_format = workload.wire_format(list(server.contestant.paths))
    assert wire_format is not None
    request = server.request(wire_format, workload.rows)

    def put_load() -> Load:
        return wrk.run_wrk(
            server.port, paths or [server.path(wire_format)], request, workload.connections, seconds
        )

    return measure_load(put_load, max_attempts)


def measure_load(put_load: Callable[[], Load], max_attempts: int = MAX_ATTEMPTS) -> Measurement:
    """Put a load on the server that runs, again if other processes disturb it; the quietest counts."""
    quietest: Measurement | None = None
    for _ in range(max_attempts):
        server_processes = processes.descendants()
        before = cpu_times(server_processes)
        load = put_load()
        after = cpu_times(server_processes)
        server_cpus, load_cpus, all_cpus = (
            (end - start) / load.seconds for start, end in zip(before, after, strict=True)
        )
        other_cpus = max(0.0, all_cpus - server_cpus - load_cpus)
        if quietest is None or other_cpus < quietest.other_cpus:
            quietest = Measurement(load, server_cpus, load_cpus, other_cpus)
        if quietest.other_cpus < MAX_OTHER_CPUS:
            break
    assert quietest is not None
    return quietest


def warm_up(server: RunningServer, workload: Workload, paths: Sequence[str] = ()) -> None:
    """Put the workload on the server for a second, so that measurements do not include first runs."""
    measure(server, workload, 1, paths, max_attempts=1)


def cpu_times(server_processes: Sequence[Any]) -> tuple[float, float, float]:
    """CPU seconds used so far: by the server, by this process with its children, and by the whole machine."""
    return processes.cpu_seconds(server_processes), processes.own_seconds(), processes.machine_seconds()
