"""Finds columns that alone give away what is to be predicted, such as a copy of it under another name.

One column at a time predicts rows from the other rows: by those with the same value, or next to it. A column
that predicts well makes some mistakes. One that makes hardly any is usually computed from the answer, or
written down after it, and will be missing when the network is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from turnpike.models.data.dataset import Dataset, seeded_generator

# rows that are looked at, so that wide tables take a second
MAX_ROWS = 20_000
# a fifth of the rows is predicted from the others, in turn
FOLDS = 5
# a leak makes at most this share of the mistakes of the best constant answer
MAX_MISTAKES = 0.005
# the same for numbers, which are wrong next to a rounded or mistaken value
MAX_NUMBER_MISTAKES = 0.05
# with fewer mistakes of the constant answer, a column may be right every time by chance
MIN_CONSTANT_MISTAKES = 20
# a number is a mistake if it is off by more than this share of the median distance from the median
TOLERANCE = 0.02
MIN_ROWS = 50


def revealing_columns(data: Dataset) -> tuple[str, ...]:
    """The columns of a table that alone give the answer in training and validation rows."""
    x, y = torch.cat([data.train.x, data.valid.x]), torch.cat([data.train.y, data.valid.y])
    order = torch.randperm(len(y), generator=seeded_generator("leaks"))[:MAX_ROWS]
    if len(order) < MIN_ROWS:
        return ()
    gives_away = _gives_class_away if data.task == "classes" else _gives_number_away
    return tuple(
        name for column, name in enumerate(data.features) if gives_away(x[order, column].double(), y[order])
    )


def _gives_class_away(column: Tensor, classes: Tensor) -> bool:
    mistakes = constant = 0
    for known, asked in _folds(len(column)):
        values, groups = _groups(column[known])
        counts = torch.zeros(len(values), int(classes.max()) + 1)
        counts.index_put_((groups, classes[known]), torch.ones(len(groups)), accumulate=True)
        answers = counts.argmax(1)[_nearest(values, column[asked])]
        mistakes += int((answers != classes[asked]).sum())
        constant += int((classes[asked] != classes[known].bincount().argmax()).sum())
    return constant >= MIN_CONSTANT_MISTAKES and mistakes <= MAX_MISTAKES * constant


def _gives_number_away(column: Tensor, numbers: Tensor) -> bool:
    numbers = numbers.double()
    distances = (numbers - numbers.median()).abs()
    tolerance = TOLERANCE * distances.median()
    mistakes = 0
    for known, asked in _folds(len(column)):
        values, groups = _groups(column[known])
        sums = torch.zeros(len(values), dtype=torch.float64).index_add(0, groups, numbers[known])
        answers = _between(values, sums / groups.bincount(minlength=len(values)), column[asked])
        mistakes += int(((answers - numbers[asked]).abs() > tolerance).sum())
    constant = int((distances > tolerance).sum())
    return constant >= MIN_CONSTANT_MISTAKES and mistakes <= MAX_NUMBER_MISTAKES * constant


def _folds(rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions of known rows, and of those that are predicted from them."""
    fold = torch.arange(rows) % FOLDS
    for number in range(FOLDS):
        yield (fold != number).nonzero().flatten(), (fold == number).nonzero().flatten()


def _groups(column: Tensor) -> tuple[Tensor, Tensor]:
    """The different values of a column in order, a blank as infinity, and the place of each row's value."""
    return torch.unique(column.nan_to_num(torch.inf, torch.inf), return_inverse=True)


def _nearest(values: Tensor, asked: Tensor) -> Tensor:
    """The place of the nearest of some values in order."""
    asked = asked.nan_to_num(torch.inf, torch.inf)
    above = torch.searchsorted(values, asked).clamp(max=len(values) - 1)
    below = (above - 1).clamp(min=0)
    exact = values[above] == asked
    return torch.where(exact | (values[above] - asked < asked - values[below]), above, below)


def _between(values: Tensor, means: Tensor, asked: Tensor) -> Tensor:
    """Interpolate linearly between the values on both sides; beyond the ends, continue the last line."""
    if len(values) == 1:
        return means.expand(len(asked))
    asked = asked.nan_to_num(torch.inf, torch.inf)
    above = torch.searchsorted(values, asked).clamp(1, len(values) - 1)
    below = above - 1
    share = (asked - values[below]) / (values[above] - values[below])
    # a blank is infinite: it is no neighbour of numbers
    share = torch.where(values[above] == asked, 1.0, share.nan_to_num(0.0, 1.0, 0.0).clamp(-1, 2))
    return means[below] + share * (means[above] - means[below])
