"""Load factors of each load shape over time."""

from __future__ import annotations

import pytest

from turnpike.loadtest.generate.load_shape import load_factor
from turnpike.loadtest.plan import SHAPES, Shape


@pytest.mark.parametrize(
    ("shape", "factors"),
    [
        ("constant", {0: 1, 0.5: 1, 1: 1}),
        ("soak", {0: 1, 0.5: 1, 1: 1}),
        ("ramp", {0: 0, 0.25: 0.25, 1: 1}),
        ("spike", {0: 0.25, 0.449: 0.25, 0.45: 1, 0.549: 1, 0.551: 0.25, 1: 0.25}),
        ("step", {0: 0.2, 0.19: 0.2, 0.21: 0.4, 0.5: 0.6, 0.79: 0.8, 0.81: 1, 1: 1}),
    ],
)
def test_load_factors_follow_the_shape(shape: Shape, factors: dict[float, float]) -> None:
    assert {time: load_factor(shape, time) for time in factors} == pytest.approx(factors)


@pytest.mark.parametrize("shape", SHAPES)
def test_load_factors_before_and_after_the_test_are_constant(shape: Shape) -> None:
    assert load_factor(shape, -3) == load_factor(shape, 0)
    assert load_factor(shape, 7) == load_factor(shape, 1)
