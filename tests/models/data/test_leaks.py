"""Columns that alone give away what is to be predicted, and others that only predict well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.data.leaks import revealing_columns

ROWS = 200


def noise(seed: int) -> Tensor:
    return torch.randn(ROWS, generator=torch.Generator().manual_seed(seed))


def revealed(column: Tensor, answers: Tensor, rows: int = ROWS) -> bool:
    """Whether a column beside one of noise is named."""
    x = torch.stack([noise(9), column], 1)[:rows]
    y = answers[:rows]
    cut = rows * 4 // 5
    labels = ("a", "b", "c") if not y.is_floating_point() else ()
    data = Dataset(
        *("made", Split(x[:cut], y[:cut]), Split(x[cut:], y[cut:]), Split(x[:1], y[:1]), labels, "numbers"),
        features=("noise", "mine"),
        task="classes" if labels else "number",
    )
    found = revealing_columns(data)
    assert "noise" not in found
    return found == ("mine",)


CLASSES = torch.randint(3, (ROWS,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("column", "leaks"),
    [
        (CLASSES.float, True),
        (lambda: 10 - 3 * CLASSES.float() + 0.1 * noise(2).clamp(-2, 2), True),
        (lambda: torch.where(CLASSES == 0, torch.nan, CLASSES.float()), True),
        # 98 % of the rows
        (lambda: torch.where(torch.arange(ROWS) % 50 == 0, 1.0, CLASSES.float()), False),
        (lambda: CLASSES + 0.3 * noise(3), False),
        (lambda: torch.arange(ROWS).float(), False),
        (lambda: torch.full((ROWS,), torch.nan), False),
    ],
    ids=["copy", "code", "blanks", "nearly", "noisy", "id", "blank"],
)
def test_columns_that_give_classes_away_are_named(column: Callable[[], Tensor], leaks: bool) -> None:
    assert revealed(column(), CLASSES) == leaks


NUMBERS = noise(5).exp()


@pytest.mark.parametrize(
    ("column", "leaks"),
    [
        (lambda: NUMBERS * 1.8 + 32, True),
        (NUMBERS.log, True),
        (lambda: (24 - NUMBERS * 100).round() / 100, True),
        (lambda: torch.where(torch.arange(ROWS) % 100 == 0, 7.0, NUMBERS), True),
        (lambda: torch.where(torch.arange(ROWS) % 6 == 0, 7.0, NUMBERS), False),
        # an R2 of 0.99
        (lambda: NUMBERS + 0.1 * NUMBERS.std() * noise(6), False),
        (lambda: torch.arange(ROWS).float(), False),
        (lambda: torch.full((ROWS,), torch.nan), False),
    ],
    ids=["other unit", "logarithm", "rounded", "two mistakes", "a sixth", "noisy", "id", "blank"],
)
def test_columns_that_give_numbers_away_are_named(column: Callable[[], Tensor], leaks: bool) -> None:
    assert revealed(column(), NUMBERS) == leaks


def test_few_rows_and_rare_classes_say_nothing() -> None:
    """A column may be right by chance: with 40 rows, or a class of 10 rows."""
    assert not revealed(CLASSES.float(), CLASSES, rows=40)
    rare = (torch.arange(ROWS) % 20 == 0).long()
    assert not revealed(rare.float(), rare)
