"""Images moved by a few pixels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.training.augment import shifted


def moved(image: Tensor, down: int, right: int) -> Tensor:
    """The image so many pixels lower and further right, pixel by pixel, zeros where nothing was."""
    result = torch.zeros_like(image)
    channels, height, width = image.shape
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                if 0 <= row - down < height and 0 <= column - right < width:
                    result[channel, row, column] = image[channel, row - down, column - right]
    return result


@pytest.mark.parametrize("by", [1, 2])
@pytest.mark.parametrize("shape", [(40, 1, 4, 4), (40, 3, 5, 4)])
def test_every_image_is_moved_within_bounds(shape: tuple[int, int, int, int], by: int) -> None:
    """Each comes out as one of the moves by up to `by` pixels, all channels alike, zeros coming in."""
    images = torch.rand(shape) + 1
    result = shifted(images, by)
    assert result.shape == images.shape
    assert result.is_contiguous()
    assert result.dtype == images.dtype
    moves = [(down, right) for down in range(-by, by + 1) for right in range(-by, by + 1)]
    found = set()
    for image, got in zip(images, result, strict=True):
        fits = [move for move in moves if torch.equal(moved(image, *move), got)]
        assert len(fits) == 1
        found.add(fits[0])
    # 40 draws of 9 or 25: both directions and both axes are sure to be among them
    assert len(found) > 5
    assert {down for down, _ in found} == {right for _, right in found} == set(range(-by, by + 1))


def test_moving_by_nothing_changes_nothing() -> None:
    """A bound of 0 is the identity."""
    images = torch.rand(6, 2, 3, 4)
    assert torch.equal(shifted(images, 0), images)


def test_what_was_given_stays_as_it_was() -> None:
    """The images themselves are not written to."""
    images = torch.rand(6, 2, 3, 4)
    before = images.clone()
    shifted(images, 2)
    assert torch.equal(images, before)


def test_moves_come_from_pytorchs_generator() -> None:
    """The same seed moves alike, and the next draw differs."""
    images = torch.rand(30, 1, 4, 4)
    torch.manual_seed(8)
    first, second = shifted(images, 2), shifted(images, 2)
    torch.manual_seed(8)
    assert torch.equal(shifted(images, 2), first)
    assert not torch.equal(first, second)
