"""Measures what the batcher adds to each request besides the run itself, for 1 to 256 callers.

    python -m benchmarks.cost.batcher_cost [SECONDS]

The comparison is the same run called in a plain coroutine, one request after the other. The cost is the time
that is left after subtracting the runs. Runs are fakes whose duration does not depend on their rows: 0; 50 µs
of busy CPU, like a short run; and 10 ms of sleep, like a long run, which lets other Python code run. Bias:
all callers are in one event loop and send their next request at once, so that batches are fuller than over a
network.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

import numpy as np
import uvloop

from turnpike.service.batching.batch_run import BatchRunner, CompletedBatch
from turnpike.service.batching.batcher import Batcher
from turnpike.service.inference_types import Array

ROW = np.zeros((1, 64), np.float32)
OUTPUTS = ("logits",)
RUN_SECONDS = (0.0, 50e-6, 10e-3)
# 0 measures the plain coroutine
CALLERS = (0, 1, 2, 16, 64, 256)


class FakeModel:
    """A model whose runs take a fixed time; counts its runs and their nanoseconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.runs = 0
        self.nanoseconds = 0

    def run(self, feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        start = time.perf_counter_ns()
        if self.seconds >= 1e-3:
            time.sleep(self.seconds)
        else:
            while time.perf_counter_ns() - start < self.seconds * 1e9:
                pass
        self.runs += 1
        outputs = [feeds["x"][:, :10]]
        self.nanoseconds += time.perf_counter_ns() - start
        return outputs


def ignore_batch(batch: CompletedBatch) -> None:
    """Counting batches for metrics is not part of the batcher's cost."""


async def answer_batched(model: FakeModel, callers: int, seconds: float) -> tuple[int, float]:
    """Requests answered through the batcher, and the seconds they took."""
    runner = BatchRunner(
        model.run, inputs=("x",), splittable=OUTPUTS, batched=True, pad_single_rows=False, max_rows=64
    )
    batcher = Batcher(runner, max_delay=0, max_queue=1024, on_batch=ignore_batch)
    feeds = {"x": ROW}
    loop = asyncio.get_running_loop()

    async def call(end: float) -> int:
        requests = 0
        while time.perf_counter() < end:
            await batcher.submit(feeds, 1, OUTPUTS, deadline=loop.time() + 30)
            requests += 1
        return requests

    await call(time.perf_counter() + seconds / 10)  # the batcher learns how long runs take
    model.runs = model.nanoseconds = 0
    start = time.perf_counter()
    requests = sum(await asyncio.gather(*(call(start + seconds) for _ in range(callers))))
    return requests, time.perf_counter() - start


async def answer_plain(model: FakeModel, seconds: float) -> tuple[int, float]:
    """Requests answered in a plain coroutine, and the seconds they took."""

    async def answer(feeds: Mapping[str, Array]) -> list[Array]:
        return model.run(feeds, OUTPUTS)

    feeds = {"x": ROW}
    start = time.perf_counter()
    requests = 0
    while time.perf_counter() < start + seconds:
        await answer(feeds)
        requests += 1
    return requests, time.perf_counter() - start


def main(seconds: float) -> None:
    """Print a table of rates, and of the time that each run and request takes besides the run itself."""
    print("| run | callers | requests/s | rows per run | added per run, µs | added per request, µs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for run_seconds in RUN_SECONDS:
        for callers in CALLERS:
            model = FakeModel(run_seconds)
            answering = answer_batched(model, callers, seconds) if callers else answer_plain(model, seconds)
            requests, elapsed = uvloop.run(answering)
            added_us = (elapsed - model.nanoseconds / 1e9) * 1e6
            print(
                f"| {run_seconds * 1e6:.0f} µs | {callers or 'no batcher'} | {requests / elapsed:,.0f} "
                f"| {requests / model.runs:.1f} | {added_us / model.runs:.1f} | {added_us / requests:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
