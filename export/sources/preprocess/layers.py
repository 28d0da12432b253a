"""What scikit-learn's transformers compute, as layers: (batch, columns) -> (batch, values).

A column of words has the place of each word, one more for a word that is none of them, and NaN for a blank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

Norm = Literal["l1", "l2", "max"]


def floats(values: Sequence[float] | np.ndarray) -> Tensor:
    """Numbers as the layers compute with them, which is in float32."""
    return torch.from_numpy(np.array(values, dtype=np.float32))


class Scale(nn.Module):
    """(x - shift) / scale."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale


class ScaleToRange(nn.Module):
    """x * scale + low, within limits if there are any."""

    scale: Tensor
    low: Tensor

    def __init__(self, scale: Tensor, low: Tensor, limits: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("low", low)
        self.limits = limits

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.scale + self.low
        return y if self.limits is None else y.clamp(*self.limits)


class Fill(nn.Module):
    """Fills the blanks of `used` columns, and has a value for each of the `marked` that is 1 for a blank."""

    fill: Tensor
    used: Tensor
    marked: Tensor

    def __init__(self, fill: Tensor, used: Sequence[int], marked: Sequence[int] = ()) -> None:
        super().__init__()
        self.register_buffer("fill", fill)
        self.register_buffer("used", torch.tensor(used, dtype=torch.int64))
        self.register_buffer("marked", torch.tensor(marked, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        own = x[:, self.used]
        filled = torch.where(own.isnan(), self.fill, own)
        if len(self.marked) == 0:
            return filled
        return torch.cat([filled, x[:, self.marked].isnan().to(x.dtype)], 1)


class OneHot(nn.Module):
    """1 where a column has a value, NaN for a blank; `slots` are pairs of column and value."""

    columns: Tensor
    values: Tensor
    for_blank: Tensor

    def __init__(self, slots: Sequence[tuple[int, float]]) -> None:
        super().__init__()
        self.register_buffer("columns", torch.tensor([column for column, _ in slots], dtype=torch.int64))
        self.register_buffer("values", floats([0.0 if math.isnan(value) else value for _, value in slots]))
        self.register_buffer("for_blank", torch.tensor([math.isnan(value) for _, value in slots]))
        self.has_blanks = any(math.isnan(value) for _, value in slots)

    def forward(self, x: Tensor) -> Tensor:
        own = x[:, self.columns]
        if not self.has_blanks:
            return (own == self.values).to(x.dtype)
        return torch.where(self.for_blank, own.isnan(), own == self.values).to(x.dtype)


class Ordinal(nn.Module):
    """For each column, the number that stands for its value.

    `numbers` are (value, number) pairs by column, `unknown` stands for other values and `blank` for blanks.
    """

    def __init__(
        self, numbers: Sequence[Sequence[tuple[float, float]]], unknown: float, blanks: Sequence[float]
    ) -> None:
        super().__init__()
        for place, pairs in enumerate(numbers):
            self.register_buffer(f"values{place}", floats([value for value, _ in pairs]))
            self.register_buffer(f"codes{place}", floats([number for _, number in pairs]))
        self.unknown = unknown
        self.blanks = tuple(blanks)

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for place, blank in enumerate(self.blanks):
            column = x[:, place : place + 1]
            same = (column == getattr(self, f"values{place}")).to(x.dtype)
            number = (same * getattr(self, f"codes{place}")).sum(1, keepdim=True)
            number = torch.where(same.sum(1, keepdim=True) > 0, number, self.unknown)
            parts.append(torch.where(column.isnan(), blank, number))
        return torch.cat(parts, 1)


class RowNorm(nn.Module):
    """Each row divided by its norm, unless that is 0."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        size = x.abs()
        if self.norm == "l1":
            norm = size.sum(1, keepdim=True)
        elif self.norm == "l2":
            norm = (x * x).sum(1, keepdim=True).sqrt()
        else:
            norm = size.amax(1, keepdim=True)
        return x / torch.where(norm == 0, torch.ones_like(norm), norm)


class Above(nn.Module):
    """1 where a value is above a threshold, else 0."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        return (x > self.threshold).to(x.dtype)


class Each(nn.Module):
    """A function of each value."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Branches(nn.Module):
    """Several layers, each for some of the columns, with their values side by side, each times a weight."""

    def __init__(self, branches: Sequence[tuple[Sequence[int], nn.Module, float]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer for _, layer, _ in branches)
        self.weights = [weight for _, _, weight in branches]
        for place, (columns, _, _) in enumerate(branches):
            self.register_buffer(f"columns{place}", torch.tensor(columns, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for place, (layer, weight) in enumerate(zip(self.layers, self.weights, strict=True)):
            values = layer(x[:, getattr(self, f"columns{place}")])
            parts.append(values if weight == 1 else values * weight)
        return torch.cat(parts, 1)


class Chosen(nn.Module):
    """Some columns, in an order of their own."""

    columns: Tensor

    def __init__(self, columns: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.columns]


class Preprocessed(nn.Module):
    """A network behind the preprocessing of its rows."""

    def __init__(self, before: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.before, self.network = before, network

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network(self.before(x))
        return result
