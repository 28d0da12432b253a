"""Latency histograms, compared with sorted lists of times."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from turnpike.loadtest.ledger import LatencyHistogram


def histogram_of(times: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for seconds in times:
        histogram.add(seconds)
    return histogram


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_percentiles_are_exact_to_one_percent(share: float) -> None:
    source = random.Random(3)
    times = [10 ** source.uniform(-5, 1) for _ in range(20_000)]
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    got = histogram_of(times).percentile(share)
    assert exact <= got * (1 + 1e-12) < exact * 1.0101


@pytest.mark.parametrize(
    ("share", "nth"), [(0, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.51, 6), (0.9, 9), (0.91, 10)]
)
def test_percentiles_of_ten_times_by_hand(share: float, nth: int) -> None:
    """The nth of the sorted times is the smallest that this share of them does not exceed."""
    got = histogram_of([0.1 * n for n in (3, 1, 4, 10, 5, 9, 2, 6, 8, 7)]).percentile(share)
    assert got == pytest.approx(0.1 * nth, rel=0.011)


def test_times_added_at_once_are_counted_like_single_ones() -> None:
    source = random.Random(4)
    times = [0.0, *(10 ** source.uniform(-8, 1) for _ in range(5000))]
    single, grouped = histogram_of(times), histogram_of(times[:100])
    grouped.add_all(np.array(times[100:]))
    assert grouped.count == single.count
    assert grouped.maximum == single.maximum
    assert grouped.total == pytest.approx(single.total)
    for share in (0.001, 0.1, 0.5, 0.9, 0.999, 1):
        assert grouped.percentile(share) == pytest.approx(single.percentile(share), rel=0.011)
    grouped.add_all(np.array([]))
    assert grouped.count == single.count


def test_the_longest_time_is_exact() -> None:
    histogram = histogram_of([0.001, 0.0123456])
    assert histogram.percentile(1) == histogram.maximum == 0.0123456


def test_a_single_time_by_hand() -> None:
    histogram = histogram_of([0.25])
    assert [histogram.percentile(share) for share in (0, 0.5, 1)] == [0.25, 0.25, 0.25]
    assert histogram.mean == 0.25


def test_an_empty_histogram_has_no_percentile() -> None:
    """NaN, because a zero would look like a measurement."""
    assert math.isnan(LatencyHistogram().percentile(0.5))
    assert math.isnan(LatencyHistogram().mean)


def test_a_time_of_zero_is_counted() -> None:
    """A clock that did not advance gives 0, which has no logarithm."""
    histogram = histogram_of([0.0, 0.0])
    assert histogram.count == 2
    assert histogram.percentile(0.5) == 0.0


def test_histograms_add_up_over_processes() -> None:
    source = random.Random(4)
    times = [source.expovariate(100) for _ in range(1000)]
    together = histogram_of(times[:300])
    together.merge(LatencyHistogram.from_json(json.loads(json.dumps(histogram_of(times[300:]).to_json()))))
    whole = histogram_of(times)
    assert together.counts == whole.counts
    assert together.count == whole.count
    assert together.maximum == whole.maximum
    assert together.total == pytest.approx(whole.total)
