"""Rows read as sequences: time series, and images line by line."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.networks.sequence import as_sequence, expect_sequence, sequence_shape


@pytest.mark.parametrize(
    ("inputs", "shape"), [((7, 3), (7, 3)), ((1, 8, 6), (8, 6)), ((3, 32, 20), (32, 60))]
)
def test_a_row_is_a_sequence_or_is_read_line_by_line(inputs: tuple[int, ...], shape: tuple[int, int]) -> None:
    """An image's height is its time, and a line of all channels its features."""
    assert sequence_shape(inputs) == shape
    assert as_sequence(torch.zeros(2, *inputs)).shape == (2, *shape)


def test_a_line_has_its_channels_one_after_another() -> None:
    """Step t is line t of the first channel, then of the next; lines and rows are not mixed."""
    image = torch.tensor([[[1, 2], [3, 4], [5, 6]], [[10, 20], [30, 40], [50, 60]]])  # (2, 3, 2)
    steps = [[1, 2, 10, 20], [3, 4, 30, 40], [5, 6, 50, 60]]
    assert as_sequence(torch.stack([image, -image])).tolist() == [steps, [[-v for v in s] for s in steps]]


def test_a_sequence_is_not_copied() -> None:
    x = torch.randn(2, 5, 3)
    assert as_sequence(x) is x


@pytest.mark.parametrize("inputs", [(5,), (1, 2, 3, 4)])
def test_rows_of_other_shapes_are_refused(inputs: tuple[int, ...]) -> None:
    """The message names the setting and both valid shapes."""
    with pytest.raises(ConfigError) as caught:
        sequence_shape(inputs)
    assert str(caught.value) == (
        f"inputs: expected (time, features) or (channels, height, width), got {inputs}"
    )


@pytest.mark.parametrize("shape", [(), (4,), (5, 4), (2, 0, 4), (2, 3, 5, 4)])
def test_a_layer_expects_three_axes_and_a_time_step(shape: tuple[int, ...]) -> None:
    """A sequence without time steps is refused."""
    with pytest.raises(ShapeError) as caught:
        expect_sequence(nn.Identity(), torch.zeros(shape), 4)
    sizes = ", ".join(map(str, shape))
    assert str(caught.value) == (
        f"Identity: expected shape [batch, time, 4] with a time of 1 or more, got [{sizes}]"
    )


def test_a_layer_expects_its_number_of_features() -> None:
    expect_sequence(nn.Identity(), torch.zeros(2, 1, 4), 4)
    with pytest.raises(ShapeError, match="^Identity: expected 4 values along axis -1"):
        expect_sequence(nn.Identity(), torch.zeros(2, 1, 5), 4)
