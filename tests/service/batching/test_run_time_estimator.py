"""Where runs go, by what those before them took."""

from __future__ import annotations

import pytest

from service.batching.batcher import SHORT_RUN_NS, RunTimeEstimator


def test_what_was_never_measured_is_not_short() -> None:
    """The first run of all might take any time."""
    assert not RunTimeEstimator().is_short(1)


def test_runs_go_by_what_they_took() -> None:
    """A size measured as short is short, one measured as long is not."""
    pace = RunTimeEstimator()
    pace.observe(100, 1, SHORT_RUN_NS // 2)
    pace.observe(100_000, 1, SHORT_RUN_NS * 2)
    assert pace.is_short(100)
    assert not pace.is_short(100_000)


def test_sizes_that_were_never_measured_go_by_the_nearest() -> None:
    """A larger run is expected to take as much longer as it is larger, a smaller one no longer."""
    pace = RunTimeEstimator()
    pace.observe(64, 1, SHORT_RUN_NS // 10)
    assert pace.is_short(1)
    assert pace.is_short(64 * 8)
    assert not pace.is_short(64 * 16)
    pace = RunTimeEstimator()
    pace.observe(1 << 20, 1, SHORT_RUN_NS * 2)
    assert not pace.is_short(1)


def test_the_nearest_of_several_counts() -> None:
    """A long large run says little of a small one, where a small one is known."""
    pace = RunTimeEstimator()
    pace.observe(64, 1, 1000)
    pace.observe(1 << 20, 1, SHORT_RUN_NS * 100)
    assert pace.is_short(128)
    assert not pace.is_short(1 << 19)


def test_one_slow_run_among_many_changes_little() -> None:
    """A machine that was busy elsewhere for a moment sends nothing to a thread; one that stays slow does."""
    pace = RunTimeEstimator()
    for _ in range(20):
        pace.observe(64, 1, SHORT_RUN_NS // 20)
    pace.observe(64, 1, SHORT_RUN_NS * 5)
    assert pace.is_short(64)
    for _ in range(10):
        pace.observe(64, 1, SHORT_RUN_NS * 5)
    assert not pace.is_short(64)


def test_a_model_that_has_become_quick_is_short_again() -> None:
    """A first run, slow because everything was cold, is soon forgotten."""
    pace = RunTimeEstimator()
    pace.observe(64, 1, SHORT_RUN_NS * 2)
    for _ in range(10):
        pace.observe(64, 1, SHORT_RUN_NS // 20)
    assert pace.is_short(64)


def test_the_wait_is_told_by_what_requests_take() -> None:
    """Runs of ten requests in a second let a hundred wait for ten; before any run nobody knows."""
    pace = RunTimeEstimator()
    assert pace.seconds_for(100) == 0
    for _ in range(3):
        pace.observe(64, 10, 1_000_000_000)
    assert pace.seconds_for(100) == pytest.approx(10)
