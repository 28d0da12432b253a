"""Compares ways to serve with FastAPI: `turnpike serve`, --app, create_app under uvicorn, and FastAPI alone.

    python -m benchmarks.comparison.under_uvicorn [--seconds N] [--rounds N]

The servers take turns. Each has two processes, and the small network. Requires wrk.
"""

from __future__ import annotations

import argparse

from benchmarks.comparison import rounds
from benchmarks.comparison.median_rates import median_rates
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
from benchmarks.folders import LIMITS
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
    rates = median_rates(
        contestants(), NETWORK_S, WORKLOADS, rounds=arguments.rounds, seconds=arguments.seconds
    )
    head = ["requests per second", *(connections_label(workload.connections) for workload in WORKLOADS)]
    rows = []
    for name, medians in rates.items():
        shares = zip(medians, rates[NAIVE.name], strict=True)
        rows.append([name, *(f"{rate:,.0f} ({rate / naive:.2f})" for rate, naive in shares)])
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
