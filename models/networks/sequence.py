"""Rows read as sequences, so that a recurrent or attentive net takes a series or an image alike."""

from __future__ import annotations

from torch import Tensor, nn

from models.checks import expect, expect_axis_size
from models.errors import ShapeError


def sequence_shape(inputs: tuple[int, ...]) -> tuple[int, int]:
    """(time, features) of one row: itself, or an image (channels, height, width) read line by line."""
    expect(
        len(inputs) in (2, 3),
        f"inputs: expected (time, features) or (channels, height, width), got {inputs}",
    )
    if len(inputs) == 2:
        return inputs[0], inputs[1]
    channels, height, width = inputs
    return height, channels * width


def as_sequence(x: Tensor) -> Tensor:
    """(batch, time, features) stays; (batch, channels, height, width) -> (batch, height, channels*width)."""
    return x if x.dim() == 3 else x.transpose(1, 2).flatten(2)


def expect_sequence(layer: nn.Module, x: Tensor, size: int) -> None:
    """Stop with a ShapeError unless x is (batch, time, size) with at least one step of time."""
    if x.dim() != 3 or x.shape[1] == 0:
        raise ShapeError(
            f"{type(layer).__name__}: expected shape [batch, time, {size}] with a time of 1 or more, "
            f"got [{', '.join(map(str, x.shape))}]"
        )
    expect_axis_size(layer, x, size)
