"""Snapshots of workers, and the registry and drift that metrics are collected from."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from turnpike.service.inference_types import InferenceResult
from turnpike.service.telemetry.counters import NS_PER_MS, RequestCounters


class FakeRegistry:
    """Models that are served, and the index of all versions."""

    def __init__(self, *models: Any, index: tuple[dict[str, str], ...] = ()) -> None:
        self.models = list(models)
        self._index = list(index)

    def index(self) -> list[dict[str, str]]:
        return self._index


class FakeDrift:
    """Adds up the rows of all workers."""

    def merge(self, snapshots: Any) -> Any:
        rows = sum(snapshots)
        layers = [SimpleNamespace(gate="layer00.transform_gate", psi=rows / 1000 if rows > 100 else None)]
        return SimpleNamespace(rows=rows, layers=layers)


def worker_snapshot(requests: int, *, waiting: int = 0, drift_rows: int | None = None) -> dict[str, Any]:
    """The snapshot of a worker that answered this many requests of two rows, each in 3 ms."""
    counters = RequestCounters()
    model = counters.for_model("digits", 1)
    for _ in range(requests):
        counters.count_response("/v2/models/{model}/infer", "POST", 200, 3 * NS_PER_MS)
        batch: Any = SimpleNamespace(rows=2, run_ns=NS_PER_MS)
        model.count_batch(batch)
        model.count_request(
            InferenceResult((), queue_ns=20_000, run_ns=NS_PER_MS, batch_rows=2), 3 * NS_PER_MS, 10, 20, 2
        )
    counters.count_error("overloaded")
    model.count_failure("overloaded", 5)
    drift = {} if drift_rows is None else {"digits": {"1": drift_rows}}
    # as it arrives over the channel between processes
    return json.loads(json.dumps({"counters": counters.snapshot({("digits", 1): waiting}), "drift": drift}))
