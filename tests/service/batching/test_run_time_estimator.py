"""Tests of the run-time estimator."""

from __future__ import annotations

import pytest

from turnpike.service.batching.batcher import SHORT_RUN_NS, RunTimeEstimator


def test_an_unmeasured_run_is_not_short() -> None:
    assert not RunTimeEstimator().is_short(1)


def test_runs_are_short_by_their_measured_time() -> None:
    run_times = RunTimeEstimator()
    run_times.observe(100, 1, SHORT_RUN_NS // 2)
    run_times.observe(100_000, 1, SHORT_RUN_NS * 2)
    assert run_times.is_short(100)
    assert not run_times.is_short(100_000)


def test_a_run_of_exactly_the_limit_is_not_short() -> None:
    run_times = RunTimeEstimator()
    run_times.observe(100, 1, SHORT_RUN_NS)
    assert not run_times.is_short(100)


def test_unmeasured_sizes_use_the_nearest_measured_size() -> None:
    run_times = RunTimeEstimator()
    run_times.observe(64, 1, SHORT_RUN_NS // 10)
    assert run_times.is_short(1)
    assert run_times.is_short(64 * 8)
    assert not run_times.is_short(64 * 16)
    run_times = RunTimeEstimator()
    run_times.observe(1 << 20, 1, SHORT_RUN_NS * 2)
    assert not run_times.is_short(1)


def test_the_nearest_of_several_measured_sizes_is_used() -> None:
    run_times = RunTimeEstimator()
    run_times.observe(64, 1, 1000)
    run_times.observe(1 << 20, 1, SHORT_RUN_NS * 100)
    assert run_times.is_short(128)
    assert not run_times.is_short(1 << 19)


def test_one_slow_run_changes_little() -> None:
    """One outlier changes nothing, but a machine that stays slow does."""
    run_times = RunTimeEstimator()
    for _ in range(20):
        run_times.observe(64, 1, SHORT_RUN_NS // 20)
    run_times.observe(64, 1, SHORT_RUN_NS * 5)
    assert run_times.is_short(64)
    for _ in range(10):
        run_times.observe(64, 1, SHORT_RUN_NS * 5)
    assert not run_times.is_short(64)


def test_a_model_that_became_fast_is_short_again() -> None:
    run_times = RunTimeEstimator()
    run_times.observe(64, 1, SHORT_RUN_NS * 2)
    for _ in range(10):
        run_times.observe(64, 1, SHORT_RUN_NS // 20)
    assert run_times.is_short(64)


def test_the_waiting_time_is_estimated_from_measured_requests() -> None:
    """At ten requests per second, 100 requests take ten seconds. Before the first run it is unknown."""
    run_times = RunTimeEstimator()
    assert run_times.seconds_for(100) == 0
    for _ in range(3):
        run_times.observe(64, 10, 1_000_000_000)
    assert run_times.seconds_for(100) == pytest.approx(10)
