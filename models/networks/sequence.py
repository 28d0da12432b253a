"""Rows as sequences, so that recurrent and attention networks read time series and images alike."""

from __future__ import annotations

from torch import Tensor, nn

from turnpike.models.checks import expect, expect_axis_size
from turnpike.models.errors import ShapeError


def sequence_shape(inputs: tuple[int, ...]) -> tuple[int, int]:
    """Return (time, features) of one row: a sequence, or an image (channels, height, width) line by line."""
    expect(
        len(inputs) in (2, 3),
        f"inputs: expected (time, features) or (channels, height, width), got {inputs}",
    )
    if len(inputs) == 2:
        return inputs[0], inputs[1]
    channels, height, width = inputs
    return height, channels * width


def as_sequence(x: Tensor) -> Tensor:
    """Return sequences unchanged, and images as sequences of their lines.

    Shapes: (batch, time, features) -> the same;
    (batch, channels, height, width) -> (batch, height, channels * width).
    """
    return x if x.dim() == 3 else x.transpose(1, 2).flatten(2)


def expect_sequence(layer: nn.Module, x: Tensor, features: int) -> None:
    """Raise a ShapeError unless x is (batch, time, features) with at least one time step."""
    if x.dim() != 3 or x.shape[1] == 0:
        raise ShapeError(
            f"{type(layer).__name__}: expected shape [batch, time, {features}] with a time of 1 or more, "
            f"got [{', '.join(map(str, x.shape))}]"
        )
    expect_axis_size(layer, x, features)
