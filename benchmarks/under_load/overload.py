"""Measures successful answers per second under five times too much load, compared with the peak.

    python -m benchmarks.under_load.overload [--seconds 60]

One worker serves requests of 64 rows, with a queue of 16. At the peak, 16 connections send their next request
when they have an answer. Under overload, 80 connections do the same and ignore Retry-After. Peak and overload
are measured in turn. Bias: the load comes from the same machine, and more connections take more CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from tests.support.digit_requests import checked_requests
from tests.support.live_server import serving
from tests.support.load_clients import LoadGenerator

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.under_load.overload", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, help="time under overload, in all rounds together"
    )
    seconds = parser.parse_args().seconds
    requests = checked_requests(8, sizes=(64,))
    statuses: Counter[int] = Counter()
    with serving("--queue", 16) as server:
        for _ in range(ROUNDS):
            peak = asyncio.run(LoadGenerator(server.url, requests, 16).run(seconds / 6))
            overload = asyncio.run(LoadGenerator(server.url, requests, 80).run(seconds / ROUNDS))
            if peak.lost or overload.lost or peak.wrong or overload.wrong:
                raise SystemExit(
                    "expected a correct answer to every request, got lost requests or wrong answers"
                )
            statuses.update(overload.statuses)
            print(
                f"peak {peak.rate():,.0f}/s  overload {overload.rate():,.0f}/s  "
                f"ratio {overload.rate() / peak.rate():.2f}"
            )
    print(f"statuses under overload: {dict(statuses)}")


if __name__ == "__main__":
    main()
