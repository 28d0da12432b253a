"""Good answers a second at five times too much load, beside those at the peak, in turn.

    python -m benchmarks.overload [--seconds 60]

One worker and a queue of 16 requests of 64 rows. The peak is 16 connections, each of which sends its next
request when it has its answer; too much are 80 that do the same, and do not heed Retry-After. Bias: the load
comes from the same machine, and takes more of it the more connections there are.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from tests.support.live_server import serving
from tests.support.load_clients import LoadGenerator
from tests.system.test_serve_faults import shots

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    heavy = shots(8, sizes=(64,))
    statuses: Counter[int] = Counter()
    with serving("--queue", 16) as server:
        for _ in range(ROUNDS):
            peak = asyncio.run(LoadGenerator(server.url, heavy, 16).run(seconds / 6))
            over = asyncio.run(LoadGenerator(server.url, heavy, 80).run(seconds / ROUNDS))
            if peak.lost or over.lost or peak.wrong or over.wrong:
                raise SystemExit("a request was lost, or its answer wrong")
            statuses.update(over.statuses)
            print(
                f"peak {peak.rate():,.0f}/s  five times {over.rate():,.0f}/s  {over.rate() / peak.rate():.2f}"
            )
    print(f"statuses at five times: {dict(statuses)}")


if __name__ == "__main__":
    main()
