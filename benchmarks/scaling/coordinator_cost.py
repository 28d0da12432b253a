"""Measures the coordinator of the replicas without Ray: reports a second, and the sum of all counters.

    python -m benchmarks.scaling.coordinator_cost

The counters of each replica are those of a service that has answered requests for ten models.
"""

from __future__ import annotations

import asyncio
import json
import time

from turnpike.service.ray.coordinator import Coordinator
from turnpike.service.telemetry.counters import RequestCounters, merge_snapshots

MODELS = 10
REPLICAS = (32, 320, 3200)


def snapshot() -> dict[str, object]:
    """The counters of a replica."""
    counters = RequestCounters()
    for number in range(MODELS):
        model = counters.for_model(f"model-{number}", 1)
        model.count_failure("timeout", 1_000_000)
    for status in (200, 400, 404, 503):
        counters.count_response("/v2/models/{model}/infer", "POST", status, 1_000_000)
    return {"counters": counters.snapshot(), "drift": {}}


async def measure(replicas: int) -> tuple[float, float]:
    """Seconds of a report, and of the sum of all replicas."""
    coordinator = Coordinator()
    reports = [snapshot() for _ in range(replicas)]
    started = time.perf_counter()
    for number, report in enumerate(reports):
        await coordinator.report(str(number), report, "", {}, [])
    reported = time.perf_counter()
    merge_snapshots(each["counters"] for each in await coordinator.snapshots())
    return (reported - started) / replicas, time.perf_counter() - reported


def main() -> None:
    print(f"a report has {len(json.dumps(snapshot())):,} bytes of JSON\n")
    print("| replicas | a report, µs | the sum of all, ms |\n| ---: | ---: | ---: |")
    for replicas in REPLICAS:
        report, total = asyncio.run(measure(replicas))
        print(f"| {replicas:,} | {report * 1e6:.1f} | {total * 1e3:.1f} |")


if __name__ == "__main__":
    main()
