"""What the batcher adds to each request beside the run itself, at one to many requests at a time.

    python benchmarks/batching.py [SECONDS]

Its rival is the same run called in a plain coroutine, one request after the other: what is left when the
runs are taken away is the price. The runs are fakes that take as long as they are told whatever their rows:
50 µs kept busy, as short ones are, and 10 ms asleep, as a long one leaves Python to others. Bias: all
callers live in one event loop and answer at once, so that batches are fuller than over a network.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

import numpy as np
import uvloop

from service.batching.batch_run import BatchRunner, CompletedBatch
from service.batching.batcher import Batcher
from service.inference_types import Array

ROW = np.zeros((1, 64), np.float32)
NAMES = ("logits",)


class Model:
    """A run that takes a given time, and what it was asked for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.runs = 0
        self.ns = 0

    def run(self, feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        start = time.perf_counter_ns()
        if self.seconds >= 1e-3:
            time.sleep(self.seconds)
        else:
            while time.perf_counter_ns() - start < self.seconds * 1e9:
                pass
        self.runs += 1
        arrays = [feeds["x"][:, :10]]
        self.ns += time.perf_counter_ns() - start
        return arrays


def ignore(batch: CompletedBatch) -> None:
    """What a meter would do is no cost of the batcher."""


async def batched(model: Model, callers: int, seconds: float) -> tuple[int, float]:
    """Requests answered through the batcher, and the seconds it took."""
    stack = BatchRunner(
        model.run, inputs=("x",), splittable=NAMES, batched=True, pad_single_rows=False, max_rows=64
    )
    batcher = Batcher(stack, max_delay=0, max_queue=1024, on_batch=ignore)
    feeds = {"x": ROW}
    loop = asyncio.get_running_loop()

    async def call(until: float) -> int:
        answered = 0
        while time.perf_counter() < until:
            await batcher.submit(feeds, 1, NAMES, deadline=loop.time() + 30)
            answered += 1
        return answered

    await call(time.perf_counter() + seconds / 10)  # the batcher learns how long runs take
    model.runs = model.ns = 0
    start = time.perf_counter()
    answered = sum(await asyncio.gather(*(call(start + seconds) for _ in range(callers))))
    return answered, time.perf_counter() - start


async def plain(model: Model, seconds: float) -> tuple[int, float]:
    """Requests answered by the run alone, and the seconds it took."""

    async def answer(feeds: Mapping[str, Array]) -> list[Array]:
        return model.run(feeds, NAMES)

    feeds = {"x": ROW}
    start = time.perf_counter()
    answered = 0
    while time.perf_counter() < start + seconds:
        await answer(feeds)
        answered += 1
    return answered, time.perf_counter() - start


def main(seconds: float) -> None:
    """Print a table of requests and of what each cost beside its run."""
    print("| run | callers | requests/s | rows a run | added to a run, µs | added to a request, µs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for takes in (0.0, 50e-6, 10e-3):
        for callers in (0, 1, 2, 16, 64, 256):
            model = Model(takes)
            answering = batched(model, callers, seconds) if callers else plain(model, seconds)
            answered, took = uvloop.run(answering)
            spare = (took - model.ns / 1e9) * 1e6
            print(
                f"| {takes * 1e6:.0f} µs | {callers or 'no batcher'} | {answered / took:,.0f} "
                f"| {answered / model.runs:.1f} | {spare / model.runs:.1f} | {spare / answered:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
