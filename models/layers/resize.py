"""Layers that change the number of units, since a highway layer needs equal input and output sizes.

Zero padding and sub-sampling have no parameters. The third way that the paper names, a plain layer
without a gate, is `transform.PlainLayer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.models.checks import expect, expect_axis_size


class ZeroPad(nn.Module):
    """Append zeros to the last axis. Shapes: (..., inputs) -> (..., units), units >= inputs."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        expect(units >= inputs > 0, f"zero padding: expected {inputs} or more units, got {units}")
        self.inputs = inputs
        self.units = units

    def forward(self, x: Tensor) -> Tensor:
        expect_axis_size(self, x, self.inputs)
        return F.pad(x, (0, self.units - self.inputs))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"{self.inputs}, {self.units}"


class SubSample(nn.Module):
    """Keep evenly spaced values of the last axis. Shapes: (..., inputs) -> (..., units), units <= inputs.

    Unit i is input floor(i * inputs / units): the first input is always kept, and none is taken twice.
    """

    indices: Tensor

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        expect(0 < units <= inputs, f"sub-sampling: expected 1 to {inputs} units, got {units}")
        self.inputs = inputs
        self.units = units
        self.register_buffer("indices", torch.arange(units) * inputs // units, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        expect_axis_size(self, x, self.inputs)
        return x.index_select(-1, self.indices)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"{self.inputs}, {self.units}"
