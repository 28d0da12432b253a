"""Turns the columns of a table, as numbers with NaN for a blank, into the values that a network reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from turnpike.common.columns import ColumnKind

# the periods of dates: a year and a week, in days
PERIODS = (365.2425, 7.0)


@dataclass(frozen=True)
class ColumnSpec:
    """What the network knows of a column.

    Attributes:
        kind: Its kind.
        categories: The number of words that training has seen; 0 if it is no category.
        blanks: Whether training has seen blanks, so that a blank says something.
    """

    kind: ColumnKind
    categories: int = 0
    blanks: bool = False


class ColumnEncoder(nn.Module):
    """Fills blanks, standardizes numbers and dates, and spreads categories.

    - A number or date is filled with the median, if blank, and standardized.
    - A date also has its place in the year and in the week, as sine and cosine.
    - A category is 1 at its own place, minus the share of each word in training. A word that was never seen,
      and a blank, are 0 everywhere: the average.
    - A column with blanks in training has a value more, which is 1 for a blank.

    Shapes: (batch, columns) -> (batch, values).
    """

    numbers: Tensor
    dates: Tensor
    blanks: Tensor
    slots: Tensor
    codes: Tensor
    last: Tensor
    shares: Tensor
    fill: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, specs: Sequence[ColumnSpec]) -> None:
        super().__init__()
        places = {
            kind: [n for n, spec in enumerate(specs) if spec.kind == kind] for kind in ("date", "category")
        }
        numbers = [n for n, spec in enumerate(specs) if spec.kind != "category"]
        slots = [(n, code) for n in places["category"] for code in range(specs[n].categories)]
        for name, indices in (
            ("numbers", numbers),
            ("dates", [numbers.index(n) for n in places["date"]]),
            ("blanks", [n for n, spec in enumerate(specs) if spec.blanks]),
            ("slots", [n for n, _ in slots]),
        ):
            self.register_buffer(name, torch.tensor(indices, dtype=torch.int64), persistent=False)
        codes = torch.tensor([float(code) for _, code in slots])
        self.register_buffer("codes", codes, persistent=False)
        last = torch.tensor([float(specs[n].categories - 1) for n, _ in slots])
        self.register_buffer("last", last, persistent=False)
        self.register_buffer("shares", torch.zeros(len(slots)))
        for name, value in (("fill", 0.0), ("shift", 0.0), ("scale", 1.0)):
            self.register_buffer(name, torch.full((len(numbers),), value))

    @staticmethod
    def size(specs: Sequence[ColumnSpec]) -> int:
        """The number of values that the encoder has for a row."""
        per_kind = {"number": 1, "boolean": 1, "date": 1 + 2 * len(PERIODS), "category": 0}
        return sum(per_kind[spec.kind] + spec.categories + spec.blanks for spec in specs)

    def fit(self, rows: Tensor) -> None:
        """Compute medians, means, spreads and shares from training rows. They are saved with the weights."""
        self.shares.copy_((rows[:, self.slots] == self.codes).double().mean(0))
        if len(self.numbers) == 0:
            return
        columns = rows[:, self.numbers].double()
        fill = columns.nanmedian(0).values.nan_to_num(0.0)
        filled = torch.where(columns.isnan(), fill, columns)
        spreads = filled.std(0, correction=0)
        constant = (filled.amin(0) == filled.amax(0)) | (spreads < torch.finfo(torch.float32).tiny)
        self.fill.copy_(fill)
        self.shift.copy_(filled.mean(0))
        self.scale.copy_(torch.where(constant, 0.0, 1 / spreads))

    def forward(self, x: Tensor) -> Tensor:
        raw = x[:, self.numbers]
        filled = torch.where(raw.isnan(), self.fill, raw)
        parts = [(filled - self.shift) * self.scale]
        if len(self.dates):
            days = filled[:, self.dates]
            for period in PERIODS:
                # within one period: float32 has too few digits for the sine of a large angle
                angle = (days - (days / period).floor() * period) * (2 * math.pi / period)
                parts += [angle.sin(), angle.cos()]
        if len(self.slots):
            own = (x[:, self.slots] == self.codes).to(x.dtype)
            parts.append(own - self.shares * self._known(x))
        if len(self.blanks):
            parts.append(x[:, self.blanks].isnan().to(x.dtype))
        return torch.cat(parts, 1)

    def _known(self, x: Tensor) -> Tensor:
        """For each slot, 1 if its column has a word that training has seen."""
        values = x[:, self.slots]
        return ((values >= 0) & (values <= self.last)).to(x.dtype)
