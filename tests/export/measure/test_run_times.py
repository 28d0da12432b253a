"""Times of runs, with a clock that the runs themselves move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat

import pytest

from turnpike.export.measure.run_times import SMALL_NOISE, time_in_turn


class Clock:
    """A clock that stands still between runs."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, seconds: Iterator[float]) -> Callable[[], object]:
        """A run that takes the next of these times."""

        def run() -> None:
            self.now += next(seconds)

        return run


def test_steady_runs_have_their_times() -> None:
    clock = Clock()
    runs = [clock.run(repeat(seconds)) for seconds in (0.002, 0.001, 0.004)]
    times = time_in_turn(runs, clock=clock)
    assert times.seconds == pytest.approx((0.002, 0.001, 0.004))
    assert times.noise == pytest.approx(0)
    # no more than is needed
    assert clock.now < 3 * 0.15 + 0.1


def test_runs_that_are_disturbed_now_and_then_do_not_count() -> None:
    """Half of the runs of one graph take ten times as long."""
    clock = Clock()
    runs = [clock.run(cycle([0.002, 0.02])), clock.run(repeat(0.002))]
    times = time_in_turn(runs, clock=clock)
    assert times.seconds == pytest.approx((0.002, 0.002))
    assert times.noise <= SMALL_NOISE


def test_a_machine_that_is_slower_for_a_while_is_slower_for_all() -> None:
    clock = Clock()
    runs = [
        clock.run(chain(repeat(seconds, 60), repeat(3 * seconds, 60), repeat(seconds)))
        for seconds in (0.002, 0.001)
    ]
    times = time_in_turn(runs, clock=clock)
    assert times.seconds[0] / times.seconds[1] == pytest.approx(2)
    assert times.noise == pytest.approx(0)


def test_noise_is_measured_longer() -> None:
    """One graph is twice as slow at first, which more runs outweigh."""
    clock = Clock()
    runs = [clock.run(repeat(0.002)), clock.run(chain(repeat(0.004, 30), repeat(0.002)))]
    times = time_in_turn(runs, clock=clock, max_seconds=20)
    assert times.seconds[1] == pytest.approx(0.002)
    assert clock.now > 0.5


def test_noise_that_stays_is_told() -> None:
    """A ratio that was 1 and is 2 is uncertain by a quarter."""
    clock = Clock()
    runs = [clock.run(repeat(0.002)), clock.run(chain(repeat(0.002, 40), repeat(0.004)))]
    times = time_in_turn(runs, clock=clock, max_seconds=0.5)
    assert times.noise == pytest.approx(0.25)


def test_runs_that_take_no_time_end() -> None:
    assert time_in_turn([lambda: None, lambda: None], clock=Clock()).noise < 1
