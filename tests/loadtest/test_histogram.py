"""Histograms of times, against sorted lists."""

from __future__ import annotations

import json
import math
import random

import pytest

from loadtest.histogram import Histogram


def filled(times: list[float]) -> Histogram:
    histogram = Histogram()
    for seconds in times:
        histogram.add(seconds)
    return histogram


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_percentiles_are_right_to_one_percent(share: float) -> None:
    """Beside the sorted times themselves, over five decades."""
    source = random.Random(3)
    times = [10 ** source.uniform(-5, 1) for _ in range(20_000)]
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    got = filled(times).percentile(share)
    assert exact <= got * (1 + 1e-12) < exact * 1.0101


def test_the_greatest_time_is_exact() -> None:
    """No percentile says more than the slowest request took."""
    histogram = filled([0.001, 0.0123456])
    assert histogram.percentile(1) == histogram.most == 0.0123456


def test_a_single_time_by_hand() -> None:
    """Every percentile of one time is that time, and so is the mean."""
    histogram = filled([0.25])
    assert [histogram.percentile(share) for share in (0, 0.5, 1)] == [0.25, 0.25, 0.25]
    assert histogram.mean == 0.25


def test_nothing_has_no_percentile() -> None:
    """NaN, rather than a zero that looks like a figure."""
    assert math.isnan(Histogram().percentile(0.5))
    assert math.isnan(Histogram().mean)


def test_no_time_at_all_is_counted() -> None:
    """A clock that did not move gives 0, which has no logarithm."""
    histogram = filled([0.0, 0.0])
    assert histogram.count == 2
    assert histogram.percentile(0.5) == 0.0


def test_histograms_add_up_over_processes() -> None:
    """Two that are merged, one of them by way of JSON, are the one of all times."""
    source = random.Random(4)
    times = [source.expovariate(100) for _ in range(1000)]
    together = filled(times[:300])
    together.merge(Histogram.heard(json.loads(json.dumps(filled(times[300:]).told()))))
    whole = filled(times)
    assert together.counts == whole.counts
    assert together.count == whole.count
    assert together.most == whole.most
    assert together.total == pytest.approx(whole.total)
