"""Resizes images of terms: each axis is multiplied by a matrix of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, UndecidedError, Value, shape_of
from turnpike.export.identity.algebra.products import matrix_product


@dataclass(frozen=True)
class Resizing:
    """How places of the result are mapped to places of the image, by the names of ONNX's Resize.

    Attributes:
        mode: "nearest", "linear" or "cubic".
        coordinates: "asymmetric", "half_pixel", "pytorch_half_pixel" or "align_corners".
        rounding: Which of the nearest places is taken: "floor", "round_prefer_ceil" or "round_prefer_floor".
        cubic_weight: The parameter of the cubic polynomials.
    """

    mode: str
    coordinates: str
    rounding: str = "floor"
    cubic_weight: float = -0.75


ROUNDINGS: dict[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_ceil": lambda place: math.floor(place + 0.5),
    "round_prefer_floor": lambda place: math.ceil(place - 0.5),
}


def resize(
    algebra: Algebra, x: Value, sizes: Sequence[int], scales: Sequence[float], resizing: Resizing
) -> Value:
    """Resize all axes to these sizes. A scale is what the program divides places by."""
    result: Value = x
    for axis, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        length = shape_of(result)[axis]
        if (size, scale) == (length, 1):
            continue
        last: Value = algebra.move(result, lambda data, axis=axis: np.moveaxis(data, axis, -1))
        if resizing.mode == "nearest":
            rounded = ROUNDINGS[resizing.rounding]
            places = [
                min(max(rounded(_place(number, length, size, scale, resizing.coordinates)), 0), length - 1)
                for number in range(size)
            ]
            last = algebra.move(last, lambda data, places=places: data[..., places])
        else:
            last = matrix_product(algebra, last, _weights(length, size, scale, resizing))
        result = algebra.move(last, lambda data, axis=axis: np.moveaxis(data, -1, axis))
    return result


def _place(number: int, length: int, size: int, scale: float, coordinates: str) -> float:
    """The place in the image of a place in the result."""
    match coordinates:
        case "asymmetric":
            return number / scale
        case "half_pixel":
            return (number + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (number + 0.5) / scale - 0.5 if size > 1 else 0.0
        case "align_corners":
            return number * (length - 1) / (size - 1) if size > 1 else 0.0
    raise UndecidedError(f"a resize with coordinates {coordinates}")


def _weights(length: int, size: int, scale: float, resizing: Resizing) -> Array:
    """A matrix of (places in the image, places in the result)."""
    weights = np.zeros((length, size))
    for number in range(size):
        place = _place(number, length, size, scale, resizing.coordinates)
        if resizing.mode == "linear":
            place = min(max(place, 0.0), length - 1)
        first = math.floor(place)
        share = place - first
        if resizing.mode == "linear":
            taps = [(first, 1 - share), (first + 1, share)]
        elif resizing.mode == "cubic":
            distances = (1 + share, share, 1 - share, 2 - share)
            taps = [
                (first + step - 1, _cubic(distance, resizing.cubic_weight))
                for step, distance in enumerate(distances)
            ]
        else:
            raise UndecidedError(f"a resize with mode {resizing.mode}")
        for tap, weight in taps:
            weights[min(max(tap, 0), length - 1), number] += weight
    return weights


def _cubic(distance: float, a: float) -> float:
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
