"""Tests of the counters: snapshots, sums over workers, and JSON."""

from __future__ import annotations

import json

from turnpike.service.batching.batch_run import CompletedBatch
from turnpike.service.inference_types import InferenceResult
from turnpike.service.telemetry.counters import (
    MAX_PENDING,
    NS_PER_MS,
    ROW_BOUNDS,
    TIME_BOUNDS_NS,
    Histogram,
    RequestCounters,
    merge_snapshots,
    without_gauges,
)


def batch(rows: int, run_ns: int) -> CompletedBatch:
    return CompletedBatch(rows, run_ns)


def worker() -> RequestCounters:
    """A worker with two successful requests in one run, one failure, and one request in flight."""
    counters = RequestCounters()
    counters.in_flight = 1
    counters.count_response("/v2/models/{model}/infer", "POST", 200, 3 * NS_PER_MS)
    counters.count_response("/v2/models/{model}/infer", "POST", 200, 3 * NS_PER_MS)
    counters.count_response("/v2/models/{model}/infer", "POST", 503, NS_PER_MS)
    counters.count_error("overloaded")
    model = counters.for_model("digits", 2)
    model.count_batch(batch(5, NS_PER_MS))
    model.count_request(
        InferenceResult((), queue_ns=100, run_ns=NS_PER_MS, batch_rows=5), 2 * NS_PER_MS, 10, 20, 2
    )
    model.count_request(
        InferenceResult((), queue_ns=300, run_ns=NS_PER_MS, batch_rows=5), 2 * NS_PER_MS, 30, 40, 3
    )
    model.count_failure("overloaded", 7)
    return counters


def test_a_bucket_includes_its_upper_bound() -> None:
    """A bound belongs to its bucket; the last bucket has everything above."""
    histogram = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21, 1000):
        histogram.add(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.total == 1062
    together = Histogram((10, 20))
    together.add_all((1000, 11, 0, 21, 10, 20))
    together.add_all(())
    assert together.snapshot() == histogram.snapshot()


def test_bounds_are_sorted() -> None:
    """Unsorted bounds would put values into the wrong bucket."""
    assert list(TIME_BOUNDS_NS) == sorted(set(TIME_BOUNDS_NS))
    assert list(ROW_BOUNDS) == sorted(set(ROW_BOUNDS))


def test_a_snapshot_has_all_counts() -> None:
    snapshot = worker().snapshot({("digits", 2): 4})
    assert snapshot["workers"] == 1
    assert snapshot["in_flight"] == 1
    assert snapshot["answered"] == {"/v2/models/{model}/infer": {"POST": {"200": 2, "503": 1}}}
    assert sum(snapshot["seconds"]["/v2/models/{model}/infer"]["counts"]) == 3
    assert snapshot["refused"] == {"overloaded": 1}
    model = snapshot["models"]["digits"]["2"]
    assert model["rows"] == 5
    assert model["waiting"] == 4
    assert sum(model["seconds"]["counts"]) == 2
    assert model["queue"]["total"] == 400
    assert (model["decode_ns"], model["infer_ns"], model["encode_ns"]) == (40, 2 * NS_PER_MS, 60)
    assert model["failed"] == {"overloaded": [1, 7]}
    assert model["sizes"] == {"5": [1, NS_PER_MS, 2, 40, 60]}
    assert model["last"] > 1_600_000_000_000


def test_requests_are_counted_together_but_none_is_missing() -> None:
    """Figures are collected in lists of bounded length, even without a request for a snapshot."""
    counters = RequestCounters()
    model = counters.for_model("digits", 1)
    for number in range(10 * MAX_PENDING + 7):
        result = InferenceResult((), queue_ns=1, run_ns=2, batch_rows=number % 2)
        model.count_request(result, total_ns=number, decode_ns=3, encode_ns=4, rows=5)
        counters.count_response("/", "GET", 200 + number % 2, number)
        assert len(model._pending) < MAX_PENDING
        assert sum(map(len, counters._pending.values())) < 2 * MAX_PENDING
    count = 10 * MAX_PENDING + 7
    snapshot = counters.snapshot()
    assert snapshot["answered"] == {"/": {"GET": {"200": count - count // 2, "201": count // 2}}}
    total = count * (count - 1) // 2
    assert snapshot["seconds"]["/"]["total"] == total
    assert sum(snapshot["seconds"]["/"]["counts"]) == count
    digits = snapshot["models"]["digits"]["1"]
    assert (digits["seconds"]["total"], digits["queue"]["total"], digits["rows"]) == (total, count, 5 * count)
    assert (digits["decode_ns"], digits["infer_ns"], digits["encode_ns"]) == (3 * count, 2 * count, 4 * count)
    assert digits["sizes"] == {"1": [0, 0, count // 2, 3 * (count // 2), 4 * (count // 2)]}


def test_a_snapshot_is_json_and_does_not_change() -> None:
    """Later counts do not change an earlier snapshot."""
    counters = worker()
    snapshot = counters.snapshot()
    assert json.loads(json.dumps(snapshot)) == snapshot
    before = json.dumps(snapshot)
    counters.count_response("/v2/models/{model}/infer", "POST", 200, NS_PER_MS)
    counters.for_model("digits", 2).count_batch(batch(5, NS_PER_MS))
    counters.for_model("digits", 2).count_failure("overloaded", 1)
    counters.count_error("overloaded")
    assert json.dumps(snapshot) == before


def test_a_request_without_rows_counts_no_batch() -> None:
    counters = RequestCounters()
    counters.for_model("digits", 1).count_request(InferenceResult(()), NS_PER_MS, 1, 1, 0)
    model = counters.snapshot()["models"]["digits"]["1"]
    assert sum(model["seconds"]["counts"]) == 1
    assert model["sizes"] == {}


def test_merge_adds_the_counts_of_workers() -> None:
    """The last inference is the latest of all workers, the start the earliest."""
    first, second = worker().snapshot(), worker().snapshot({("digits", 2): 3})
    second["models"]["other"] = {"1": first["models"]["digits"]["2"]}
    first["models"]["digits"]["2"]["last"], second["models"]["digits"]["2"]["last"] = 10, 20
    first["started"], second["started"] = 1.5, 2.5
    before = json.dumps([first, second])
    merged = merge_snapshots([first, second])
    assert json.dumps([first, second]) == before
    assert merged["workers"] == 2
    assert merged["started"] == 1.5
    assert merged["in_flight"] == 2
    assert merged["answered"]["/v2/models/{model}/infer"]["POST"] == {"200": 4, "503": 2}
    model = merged["models"]["digits"]["2"]
    assert model["last"] == 20
    assert model["waiting"] == 3
    assert model["sizes"] == {"5": [2, 2 * NS_PER_MS, 4, 80, 120]}
    assert model["run"] == {
        "counts": [2 * count for count in first["models"]["digits"]["2"]["run"]["counts"]],
        "total": 2 * NS_PER_MS,
    }
    assert merged["models"]["other"]["1"]["rows"] == 5


def test_merged_snapshots_can_be_merged() -> None:
    one, two, three = (worker().snapshot() for _ in range(3))
    assert (
        merge_snapshots([merge_snapshots([one, two]), three])
        == merge_snapshots([one, two, three])
        == merge_snapshots([three, merge_snapshots([two, one])])
    )


def test_merging_no_snapshots_gives_zeros() -> None:
    merged = merge_snapshots([])
    assert merged["workers"] == 0
    assert merged["models"] == {}


def test_an_ended_worker_keeps_counts_but_no_gauges() -> None:
    """Counts stay, gauges end with the worker."""
    counters = worker()
    # the name of this model is also a key of snapshots
    counters.for_model("waiting", 1).count_failure("broken", 1)
    snapshot = counters.snapshot({("digits", 2): 4})
    left = without_gauges(snapshot)
    assert (left["workers"], left["in_flight"]) == (0, 0)
    assert left["models"]["digits"]["2"]["waiting"] == 0
    assert left["models"]["waiting"]["1"]["failed"] == {"broken": [1, 1]}
    assert left["models"]["digits"]["2"]["rows"] == 5
    assert left["answered"] == snapshot["answered"]
    assert snapshot["in_flight"] == 1


def test_each_version_has_one_set_of_counters() -> None:
    counters = RequestCounters()
    assert counters.for_model("digits", 1) is counters.for_model("digits", 1)
    assert counters.for_model("digits", 1) is not counters.for_model("digits", 2)
