"""Recipes: learning rates and checks of the settings."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from turnpike.models.errors import ConfigError
from turnpike.models.training.recipe import Recipe


def rates(steps: int, **settings: Any) -> list[float]:
    recipe = Recipe(**settings)
    return [recipe.lr_at(step, steps) for step in range(steps + 1)]


def test_a_constant_rate_is_constant() -> None:
    assert rates(7, lr=0.3) == [0.3] * 8


def test_a_cosine_schedule_falls_from_the_lr_to_zero() -> None:
    """The rate is the lr at first, half of it in the middle, and zero after the last step."""
    got = rates(100, lr=0.2, schedule="cosine")
    assert got[0] == 0.2
    assert got[25] == pytest.approx(0.1 * (1 + math.sqrt(0.5)))
    assert got[50] == pytest.approx(0.1)
    assert got[100] == pytest.approx(0.0, abs=1e-15)
    assert got == sorted(got, reverse=True)


def test_a_one_cycle_schedule_rises_for_a_quarter_and_falls_to_zero() -> None:
    """It starts at a 25th of the lr, reaches it after a quarter of the steps, and falls to zero."""
    got = rates(400, lr=0.2, schedule="onecycle")
    assert got[0] == pytest.approx(0.2 / 25)
    assert got[50] == pytest.approx(0.2 * 0.52)
    assert got[100] == pytest.approx(0.2)
    assert got[250] == pytest.approx(0.1)
    assert got[400] == pytest.approx(0.0, abs=1e-15)
    assert got[:101] == sorted(got[:101])
    assert got[100:] == sorted(got[100:], reverse=True)
    assert max(abs(after - before) for before, after in pairwise(got)) < 0.01


@pytest.mark.parametrize("schedule", ["constant", "cosine", "onecycle"])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_short_runs_have_positive_rates(schedule: Any, steps: int) -> None:
    """Every step has a rate above zero, and never above the lr."""
    got = rates(steps, lr=0.5, schedule=schedule)[:steps]
    assert all(0 < rate <= 0.5 for rate in got)
    assert got[0] == pytest.approx(0.02 if schedule == "onecycle" else 0.5)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("epochs", 0, "epochs: expected 1 or more, got 0"),
        ("batch", 0, "batch: expected 1 or more, got 0"),
        ("lr", 0.0, "lr: expected a positive number, got 0.0"),
        ("lr", -1e-3, "lr: expected a positive number, got -0.001"),
        ("lr", math.inf, "lr: expected a positive number, got inf"),
        ("lr", math.nan, "lr: expected a positive number, got nan"),
        ("weight_decay", -0.1, "weight decay: expected 0 or more, got -0.1"),
        ("weight_decay", math.nan, "weight decay: expected 0 or more, got nan"),
        ("clip", -1.0, "clip: expected 0 or more, got -1.0"),
        ("shift", -1, "shift: expected 0 or more pixels, got -1"),
        ("distort", 1.0, "distort: expected 0 or more, below 1, got 1.0"),
        ("thickness", -0.1, "thickness: expected 0 or more, got -0.1"),
        ("threads", -1, "threads: expected 1 or more, or 0 for one per core, got -1"),
        ("schedule", "linear", "schedule: expected one of constant, cosine, onecycle, got 'linear'"),
        ("precision", "fp16", "precision: expected one of fp32, bf16, got 'fp16'"),
        ("test_fraction", 0.0, "test fraction: expected a number between 0 and 1, got 0.0"),
        ("test_fraction", 1.0, "test fraction: expected a number between 0 and 1, got 1.0"),
    ],
)
def test_an_invalid_setting_is_refused(setting: str, value: Any, message: str) -> None:
    """The message names the setting, its value and the valid ones."""
    with pytest.raises(ConfigError) as caught:
        Recipe(**{setting: value})
    assert str(caught.value) == message


def test_a_recipe_survives_json() -> None:
    recipe = Recipe(
        epochs=3,
        batch=5,
        lr=0.7,
        schedule="onecycle",
        weight_decay=0.1,
        clip=2.0,
        shift=1,
        precision="bf16",
        threads=0,
        test_fraction=0.25,
    )
    assert recipe.to_dict().keys() == Recipe.__dataclass_fields__.keys()
    assert Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe != Recipe()
