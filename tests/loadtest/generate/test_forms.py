"""How a load goes up and down: each form at the times that matter."""

from __future__ import annotations

import pytest

from loadtest.generate.forms import level
from loadtest.plan import FORMS, Form


@pytest.mark.parametrize(
    ("form", "levels"),
    [
        ("constant", {0: 1, 0.5: 1, 1: 1}),
        ("soak", {0: 1, 0.5: 1, 1: 1}),
        ("ramp", {0: 0, 0.25: 0.25, 1: 1}),
        ("spike", {0: 0.25, 0.449: 0.25, 0.45: 1, 0.549: 1, 0.551: 0.25, 1: 0.25}),
        ("step", {0: 0.2, 0.19: 0.2, 0.21: 0.4, 0.5: 0.6, 0.79: 0.8, 0.81: 1, 1: 1}),
    ],
)
def test_levels(form: Form, levels: dict[float, float]) -> None:
    """The share of the load at each share of the time."""
    assert {time: level(form, time) for time in levels} == pytest.approx(levels)


@pytest.mark.parametrize("form", FORMS)
def test_before_and_after(form: Form) -> None:
    """The warm-up is as the beginning, and what comes after the end is as the end."""
    assert level(form, -3) == level(form, 0)
    assert level(form, 7) == level(form, 1)
