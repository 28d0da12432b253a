"""Model statistics in the form of the Open Inference Protocol."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from turnpike.service.api.statistics import model_stats
from turnpike.service.inference_types import InferenceResult
from turnpike.service.telemetry.counters import RequestCounters


def worker() -> dict[str, Any]:
    """A worker that ran two requests with 5 rows in one batch, then one alone, and refused one."""
    counters = RequestCounters()
    model = counters.for_model("digits", 1)
    model.count_batch(SimpleNamespace(rows=5, run_ns=1000))
    model.count_request(InferenceResult((), queue_ns=100, run_ns=1000, batch_rows=5), 2000, 10, 20, 2)
    model.count_request(InferenceResult((), queue_ns=300, run_ns=1000, batch_rows=5), 2500, 30, 40, 3)
    model.count_batch(SimpleNamespace(rows=1, run_ns=400))
    model.count_request(InferenceResult((), queue_ns=0, run_ns=400, batch_rows=1), 600, 1, 2, 1)
    model.count_failure("overloaded", 7)
    model.count_failure("expired", 8)
    counters.for_model("digits", 10)
    counters.for_model("digits", 2)
    counters.for_model("other", 1)
    return {"counters": counters.snapshot(), "drift": {}}


def test_statistics_are_sums_over_workers() -> None:
    """Rows, runs, and the times of requests and of runs, summed over two workers."""
    (entry,) = model_stats([worker(), worker()], "digits", 1)
    assert entry.pop("last_inference") > 1_600_000_000_000
    assert entry == {
        "name": "digits",
        "version": "1",
        "inference_count": 12,
        "execution_count": 4,
        "inference_stats": {
            "success": {"count": 6, "ns": 10_200},
            "fail": {"count": 4, "ns": 30},
            "queue": {"count": 6, "ns": 800},
            "compute_input": {"count": 6, "ns": 82},
            "compute_infer": {"count": 6, "ns": 4800},
            "compute_output": {"count": 6, "ns": 124},
            "cache_hit": {"count": 0, "ns": 0},
            "cache_miss": {"count": 0, "ns": 0},
        },
        "batch_stats": [
            {
                "batch_size": 1,
                "compute_input": {"count": 2, "ns": 2},
                "compute_infer": {"count": 2, "ns": 800},
                "compute_output": {"count": 2, "ns": 4},
            },
            {
                "batch_size": 5,
                "compute_input": {"count": 4, "ns": 80},
                "compute_infer": {"count": 2, "ns": 2000},
                "compute_output": {"count": 4, "ns": 120},
            },
        ],
    }


def test_statistics_can_be_selected_by_model_and_version() -> None:
    """All models, one, or one version. Versions are in numerical order."""

    def chosen(*selection: Any) -> list[tuple[str, str]]:
        return [(entry["name"], entry["version"]) for entry in model_stats([worker()], *selection)]

    assert chosen() == [("digits", "1"), ("digits", "2"), ("digits", "10"), ("other", "1")]
    assert chosen("digits") == [("digits", "1"), ("digits", "2"), ("digits", "10")]
    assert chosen("digits", 10) == [("digits", "10")]
    assert chosen("absent") == []


def test_statistics_of_an_unused_model_are_zero() -> None:
    """It is listed, as clients read its fields without checking that they exist."""
    (entry,) = model_stats([worker()], "other")
    assert entry["inference_count"] == 0
    assert entry["last_inference"] == 0
    assert entry["inference_stats"]["success"] == {"count": 0, "ns": 0}
    assert entry["batch_stats"] == []
