"""Finds how pictures become the rows of a network: their size, and the numbers of black and white."""

from __future__ import annotations

from turnpike.export.errors import UsageError
from turnpike.export.network import Network
from turnpike.service.artifact.manifest import PictureInput
from turnpike.service.artifact.sample_rows import picture_size
from turnpike.service.artifact.tensor import Tensor

OPTION = "--pixels"


def parse_pixels(option: str, network: Network) -> tuple[float, float]:
    """The numbers of a black and of a white pixel in `BLACK:WHITE`, for a network of pictures."""
    if _size(network) is None:
        shapes = ", ".join(map(str, network.inputs))
        raise UsageError(f"{OPTION}: expected one input of pictures, such as [batch,1,28,28], got {shapes}")
    black, _, white = option.partition(":")
    try:
        numbers = float(black), float(white)
    except ValueError:
        raise UsageError(
            f"{OPTION}: expected the numbers of black and white, such as 0:255, got {option!r}"
        ) from None
    if numbers[0] == numbers[1] or not all(abs(number) < float("inf") for number in numbers):
        raise UsageError(f"{OPTION}: expected two finite numbers for black and white, got {option!r}")
    return numbers


def picture_input(network: Network) -> PictureInput | None:
    """How pictures become rows, if the user, the training or the rows say which numbers they have."""
    size = _size(network)
    if network.pixels is None or size is None:
        return None
    height, width, channels = size
    black, white = network.pixels
    return PictureInput(
        input=network.inputs[0].name, height=height, width=width, channels=channels, black=black, white=white
    )


def _size(network: Network) -> tuple[int, int, int] | None:
    """Height, width and channels of the pictures that fit the input; None if none do."""
    if len(network.inputs) != 1:
        return None
    (spec,) = network.inputs
    return picture_size(Tensor(spec.name, spec.dtype, spec.dims))
