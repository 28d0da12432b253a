"""The interface of `Residues` in float64, with the true functions in place of random ones.

Tests run every operator with these numbers against PyTorch and onnxruntime. An error in the algebra, which
both programs share, would not be seen by comparing residues.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.numbers.kept_weights import KeptWeights

Array = np.ndarray[Any, np.dtype[Any]]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": lambda x: x,
    "1/x": lambda x: 1 / x,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "truncate": np.trunc,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "remainder": np.mod,
    "fmod": np.fmod,
    "div floor": np.floor_divide,
    "div trunc": lambda a, b: np.trunc(a / b),
    "softplus - x/2": lambda x: np.log1p(np.exp(-np.abs(x))) + np.abs(x) / 2,
    "sigmoid - 1/2": lambda x: np.tanh(x / 2) / 2,
    "sign": np.sign,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "is zero": lambda x: (x == 0) * 1.0,
    "argmax": lambda *parts: np.argmax(np.stack(parts), axis=0).astype(float),
    "isnan": lambda x: np.isnan(x) * 1.0,
    "isinf": lambda x: np.isinf(x) * 1.0,
}
# in place of infinity and of the largest float32, so that it stays a number under multiplication by 0
INFINITY = 1e30


class Reals:
    """Real numbers: an array has one axis more than the tensor, the first, of size 1."""

    exact = False
    primes = (0,)

    def __init__(self) -> None:
        self.weights = KeptWeights()

    def random(self, shape: Sequence[int]) -> Array:
        raise NotImplementedError("inputs of real runs are given")

    def from_floats(self, array: Array) -> Array:
        return array.astype(np.float64)[None]

    def from_floats_modulo(self, array: Array, number: int) -> Array:
        return array.astype(np.float64)

    def from_integers(self, array: Array) -> Array:
        return array.astype(np.float64)[None]

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def subtract(self, a: Array, b: Array) -> Array:
        return a - b

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b

    def sum(self, a: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array:
        return np.asarray(a.sum(axis=tuple(axis + 1 for axis in axes), keepdims=keepdims))

    def cumulative_sum(self, a: Array, axis: int) -> Array:
        return np.cumsum(a, axis=axis + 1)

    def inverse(self, a: Array) -> Array:
        return 1 / a

    def product(self, a: Array, b: Array, number: int) -> Array:
        return np.matmul(a, b)

    def function(self, name: str, arguments: Sequence[Array]) -> Array:
        if name in ("infinity", "largest number"):
            return np.full_like(arguments[0], INFINITY)
        if name.startswith("of this run: "):
            return arguments[0].copy()
        if name.startswith("wrap to "):
            dtype = np.dtype(name.removeprefix("wrap to "))
            return arguments[0].astype(np.int64).astype(dtype).astype(np.float64)
        if name.startswith("fourth root of 1/"):
            return np.full_like(arguments[0], float(name.removeprefix("fourth root of 1/")) ** -0.25)
        if name.startswith("square root of "):
            return np.full_like(arguments[0], math.sqrt(float(name.removeprefix("square root of "))))
        if name.startswith(("number of rank ", "place of rank ")):
            stacked, rank = np.stack(np.broadcast_arrays(*arguments)), int(name.rsplit(" ", 1)[1])
            order = np.argsort(-stacked, axis=0, kind="stable")[rank]
            if name.startswith("place"):
                return order.astype(np.float64)
            return np.take_along_axis(stacked, order[None], 0)[0]
        if name.startswith("element of "):
            return _element(ast.literal_eval(name.removeprefix("element of ")), arguments)
        # laws ask for the values of both branches at their border
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(FUNCTIONS[name](*np.broadcast_arrays(*arguments)), np.float64)

    def odd_function(self, name: str, a: Array) -> Array:
        return self.function(name, [a])

    def even_function(self, name: str, a: Array) -> Array:
        return self.function(name, [a])

    def set_function(self, name: str, a: Array) -> Array:
        if name != "maximum":
            raise NotImplementedError(name)
        return np.asarray(a.max(-1))

    def rows(self, table: Array, ids: Array) -> Array:
        return table.astype(np.float64)[ids.astype(np.int64)]


def _element(sizes: tuple[int, ...], arguments: Sequence[Array]) -> Array:
    """The part of a table at ids, one for each of these sizes, which come before the parts."""
    arguments = np.broadcast_arrays(*arguments)
    ids = [column.astype(np.int64) % size for column, size in zip(arguments, sizes, strict=False)]
    place = np.ravel_multi_index(ids, sizes)
    return np.take_along_axis(np.stack(arguments[len(sizes) :]), place[None], 0)[0]
