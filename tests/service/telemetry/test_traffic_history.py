"""The history of traffic: figures between two snapshots of the counters, kept for some minutes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.worker_snapshots import worker_snapshot
from turnpike.service.telemetry.counters import NS_PER_MS, merge_snapshots
from turnpike.service.telemetry.traffic_history import (
    HISTORY_SECONDS,
    MOMENT_SECONDS,
    TrafficHistory,
    quantile,
)

MODEL = "digits/1"


def counters(*requests: int, waiting: int = 0) -> dict[str, Any]:
    """The merged counters of workers that have answered this many requests of two rows, each in 3 ms."""
    return merge_snapshots(worker_snapshot(count, waiting=waiting)["counters"] for count in requests)


def history_of(*snapshots: dict[str, Any]) -> list[dict[str, Any]]:
    """The moments between snapshots that were taken every four seconds."""
    history = TrafficHistory()
    for number, snapshot in enumerate(snapshots):
        history.record(4.0 * number, snapshot)
    moments: list[dict[str, Any]] = history.to_json(0)["moments"]
    return moments


def test_a_moment_has_the_figures_between_two_snapshots() -> None:
    """Those of all workers together; the first snapshot only sets the starting point."""
    (moment,) = history_of(counters(3, 5), counters(5, 9, waiting=2))
    assert (moment["at"], moment["workers"]) == (4, 2)
    figures = moment["models"][MODEL]
    assert figures == {
        "requests_per_s": 1.5,
        "rows_per_s": 3,
        # in the bucket from 2.5 to 5 ms, of which the quantile is as far as its share
        "p50_s": pytest.approx(0.00375),
        "p99_s": pytest.approx(0.004975),
        "mean_s": pytest.approx(0.003),
        "rows_per_run": 2,
        "waiting": 4,
        "queue_p99_s": pytest.approx(0.0000495),
        "run_p50_s": pytest.approx(0.00075),
        "failed_per_s": {},
    }
    assert moment["total"] == figures


def test_failures_are_counted_by_reason() -> None:
    """The total has all error responses, also those that are of no model."""
    before, after = counters(1), counters(1)
    after["models"]["digits"]["1"]["failed"] |= {"expired": [6, 1], "overloaded": [3, 1]}
    after["refused"] |= {"unauthorized": 8}
    (moment,) = history_of(before, after)
    assert moment["models"][MODEL]["failed_per_s"] == {"expired": 1.5, "overloaded": 0.5}
    assert moment["total"]["failed_per_s"] == {"unauthorized": 2}
    history = TrafficHistory()
    history.record(0, after)
    assert history.to_json(0)["refused"] == {"overloaded": 1, "unauthorized": 8}
    assert history.to_json(0)["failed"] == {MODEL: {"expired": 6, "overloaded": 3}}


def test_a_model_without_traffic_is_left_out() -> None:
    (moment,) = history_of(counters(3), counters(3))
    assert moment["models"] == {}
    assert (moment["total"]["requests_per_s"], moment["total"]["p50_s"]) == (0, None)


def test_a_new_model_counts_from_its_first_request() -> None:
    empty = merge_snapshots([])
    (moment,) = history_of(empty, counters(8))
    assert moment["models"][MODEL]["requests_per_s"] == 2
    assert moment["models"][MODEL]["failed_per_s"] == {"overloaded": 0.25}


def test_only_moments_after_a_time_are_returned() -> None:
    history = TrafficHistory()
    for number in range(4):
        history.record(number, counters(number))
    assert [moment["at"] for moment in history.to_json(0)["moments"]] == [1, 2, 3]
    assert [moment["at"] for moment in history.to_json(2)["moments"]] == [3]
    assert history.to_json(3)["moments"] == []


def test_only_the_last_minutes_are_kept() -> None:
    """The memory for them stays the same, however long the service runs."""
    history = TrafficHistory()
    snapshot = counters(1)
    kept = round(HISTORY_SECONDS / MOMENT_SECONDS)
    for number in range(kept + 50):
        history.record(MOMENT_SECONDS * number, snapshot)
    moments = history.to_json(0)["moments"]
    assert len(moments) == kept
    assert moments[0]["at"] == MOMENT_SECONDS * 50


def test_without_a_snapshot_there_are_no_moments() -> None:
    assert TrafficHistory().to_json(0)["moments"] == []


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 4, 4, 0], 0.5, 2),  # half of the values are at or below the bound of the second bucket
        ([0, 4, 4, 0], 0.25, 1.5),  # the middle of the second bucket, from 1 to 2
        ([4, 0, 0, 0], 0.5, 0.5),  # the first bucket starts at 0
        ([0, 0, 0, 5], 0.99, 4),  # above the last bound
        ([0, 0, 10, 0], 0.1, 2.2),  # the empty buckets before it contain no quantile
        ([0, 0, 0, 0], 0.5, None),
    ],
)
def test_quantiles_are_interpolated_in_buckets(
    counts: list[int], share: float, expected: float | None
) -> None:
    found = quantile(counts, (1, 2, 4), share)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_times_are_in_seconds() -> None:
    """Counters have nanoseconds."""
    (moment,) = history_of(counters(0), counters(1))
    assert moment["models"][MODEL]["mean_s"] == pytest.approx(3 * NS_PER_MS / 1e9)
