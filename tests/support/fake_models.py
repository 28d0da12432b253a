"""Fake models for tests of the batcher, which record their inputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from turnpike.service.batching.batch_run import BatchRunner, CompletedBatch
from turnpike.service.batching.batcher import Batcher
from turnpike.service.inference_types import Array, InferenceResult

Rule = Callable[[Mapping[str, Array]], None]
RunInLoop = Callable[[Coroutine[Any, Any, None]], None]


class Doubler:
    """Outputs `double`, `negative` and `total` of `x`. Each run calls `rule`, which may raise or sleep."""

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = rule
        self.feeds: list[dict[str, Array]] = []
        self.requested: list[tuple[str, ...]] = []
        self.threads: list[int] = []

    def run(self, feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        self.feeds.append(dict(feeds))
        self.requested.append(names)
        self.threads.append(threading.get_ident())
        if self.rule is not None:
            self.rule(feeds)
        x = feeds["x"]
        outputs = {"double": 2 * x, "negative": -x, "total": np.array([x.sum()])}
        return [outputs[name] for name in names]

    @property
    def rows(self) -> list[list[float]]:
        """The first number of each row, run by run."""
        return [[float(row.flat[0]) for row in feeds["x"]] for feeds in self.feeds]


class BlockedRuns:
    """A model whose runs wait until `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.model = Doubler(lambda feeds: self.wait())

    def wait(self) -> None:
        assert self.release.wait(10)


def make_runner(run: Any, **changes: Any) -> BatchRunner:
    """A BatchRunner with the given options."""
    options: dict[str, Any] = {
        "inputs": ("x",),
        "splittable": {"double", "negative"},
        "batched": True,
        "pad_single_rows": False,
        "max_rows": 8,
    }
    return BatchRunner(run, **(options | changes))


def make_batcher(run: Any, observed: list[CompletedBatch] | None = None, **changes: Any) -> Batcher:
    """A Batcher with the given options, of its own and of its runner."""
    defaults: dict[str, Any] = {
        "max_delay": 0.0,
        "max_queue": 100,
        "on_batch": (lambda batch: None) if observed is None else observed.append,
    }
    own = {name: changes.pop(name) for name in defaults.keys() & changes}
    return Batcher(make_runner(run, **changes), **(defaults | own))


def rows(*tags: float, width: int = 2) -> dict[str, Array]:
    """One row for each tag, filled with it."""
    return {"x": np.repeat(np.array(tags, np.float32)[:, None], width, axis=1)}


def first_value(result: InferenceResult) -> float:
    """The first number of the first output."""
    return float(result.arrays[0].flat[0])


def with_short_runs(batcher: Batcher) -> Batcher:
    """Teach a batcher that runs of every size are short."""
    for bits in range(20):
        batcher._run_times.observe(1 << bits, 1, 1000)
    return batcher


def sleep_for(seconds: float) -> Rule:
    """A rule that makes each run take this long."""
    return lambda feeds: time.sleep(seconds)
