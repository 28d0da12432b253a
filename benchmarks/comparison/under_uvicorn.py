"""Compares ways to serve with FastAPI: `turnpike serve`, --app, create_app under uvicorn, and FastAPI alone.

    python -m benchmarks.comparison.under_uvicorn [--seconds N] [--rounds N]

The servers take turns. Each has two processes, and the small network. Requires wrk.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.comparison import rounds
from benchmarks.contestants.contestants import (
    INFER_PATH,
    NAIVE,
    PROTOCOL_PATHS,
    UVICORN_OPTIONS,
    Contestant,
    turnpike,
)
from benchmarks.contestants.networks import NETWORK_S
from benchmarks.contestants.wire_formats import WireFormat
from benchmarks.errors import BenchmarkError
from benchmarks.folders import LIMITS
from benchmarks.measurement import processes
from benchmarks.measurement.measure import measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.measurement.wrk import require_wrk
from benchmarks.results.tables import connections_label, markdown_table

WORKLOADS = tuple(workload for workload in rounds.WORKLOADS[NETWORK_S.name] if workload.rows == 1)
BELOW_PREFIX: dict[WireFormat, str] = dict.fromkeys(PROTOCOL_PATHS, f"/ml{INFER_PATH}")
SETTINGS = {"TURNPIKE_MODELS": "{models}", "TURNPIKE_THREADS": "1"}
SERVE_APP = ("{python}", "-m", "turnpike", "serve", "--port", "{port}", "--drain-wait", "0", "--workers", "2")


def contestants() -> list[Contestant]:
    """The servers. `in_fastapi.py` has the applications of a user."""
    uvicorn = ("{python}", "-m", "uvicorn", "--port", "{port}", "--workers", "2", *UVICORN_OPTIONS[2:])
    common = {"variables": SETTINGS, "folder": LIMITS}
    return [
        turnpike("turnpike serve", workers=2),
        Contestant(
            "serve --app, nothing of the user's",
            (*SERVE_APP, "--app", "in_fastapi:plain"),
            BELOW_PREFIX,
            **common,  # type: ignore[arg-type]
        ),
        Contestant(
            "serve --app, with a dependency",
            (*SERVE_APP, "--app", "in_fastapi:guarded"),
            BELOW_PREFIX,
            **common,  # type: ignore[arg-type]
        ),
        Contestant(
            "create_app under uvicorn",
            (*uvicorn, "turnpike.service.asgi:app"),
            PROTOCOL_PATHS,
            **common,  # type: ignore[arg-type]
        ),
        NAIVE,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.under_uvicorn", description=__doc__
    )
    parser.add_argument("--seconds", type=int, default=2, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    processes.adopt_descendants()
    NETWORK_S.ensure_files()
    servers = contestants()
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for contestant in servers:
            with running_server(contestant, NETWORK_S) as server:
                warm_up(server, WORKLOADS[-1])
                for workload in WORKLOADS:
                    load = measure(server, workload, arguments.seconds).load
                    if load.lost or load.refused:
                        raise BenchmarkError(
                            f"{contestant.name}: expected answers to all requests, got {load}"
                        )
                    rates.setdefault((contestant.name, workload.connections), []).append(load.rate)
    head = ["requests per second", *(connections_label(workload.connections) for workload in WORKLOADS)]
    rows = []
    for contestant in servers:
        medians = [statistics.median(rates[contestant.name, workload.connections]) for workload in WORKLOADS]
        naive = [statistics.median(rates[NAIVE.name, workload.connections]) for workload in WORKLOADS]
        cells = [f"{rate:,.0f} ({rate / base:.2f})" for rate, base in zip(medians, naive, strict=True)]
        rows.append([contestant.name, *cells])
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
