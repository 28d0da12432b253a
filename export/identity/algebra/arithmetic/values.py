"""Known numbers and sizes as field elements, and what is done to values whatever their elements are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypedDict, overload

import numpy as np

from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Known,
    SizeLedger,
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    shape_of,
)
from turnpike.export.identity.numbers.error_bound import ATOM, ErrorBound, Size, size_of
from turnpike.export.identity.numbers.kept_weights import KeptWeights

# they grow with their operands, if none is negative
GROWING = (np.add, np.multiply, np.maximum)


class Numbers(Protocol):
    """`Residues`, or `Reals` in tests of operators."""

    @property
    def exact(self) -> bool: ...
    @property
    def primes(self) -> tuple[int, ...]: ...
    @property
    def weights(self) -> KeptWeights: ...
    def random(self, shape: Sequence[int]) -> Array: ...
    def from_floats(self, array: Array) -> Array: ...
    def from_floats_modulo(self, array: Array, number: int) -> Array: ...
    def from_integers(self, array: Array) -> Array: ...
    def add(self, a: Array, b: Array) -> Array: ...
    def subtract(self, a: Array, b: Array) -> Array: ...
    def multiply(self, a: Array, b: Array) -> Array: ...
    def sum(self, a: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array: ...
    def cumulative_sum(self, a: Array, axis: int) -> Array: ...
    def inverse(self, a: Array) -> Array: ...
    def product(self, a: Array, b: Array, number: int) -> Array: ...
    def function(self, name: str, arguments: Sequence[Array]) -> Array: ...
    def odd_function(self, name: str, a: Array) -> Array: ...
    def even_function(self, name: str, a: Array) -> Array: ...
    def set_function(self, name: str, a: Array) -> Array: ...
    def rows(self, table: Array, ids: Array) -> Array: ...


class Options(TypedDict, total=False):
    """How a run computes.

    Attributes:
        symbolic_sizes: Whether a size that is read from a tensor is an atom in all arithmetic; if not, it is
            the number of this run.
        normalizes: Whether selections, powers and softmax are brought to a normal form. Without, functions
            that are equal by a law may have other elements.
        bound: What counts for all runs on these numbers; without one, there is one run.
    """

    symbolic_sizes: bool
    normalizes: bool
    bound: ErrorBound


class Values:
    """Conversions of values."""

    def __init__(
        self,
        numbers: Numbers,
        *,
        symbolic_sizes: bool = True,
        normalizes: bool = True,
        bound: ErrorBound | None = None,
    ) -> None:
        """See `Options`."""
        self.numbers = numbers
        self.normalizes = normalizes
        self.bound = ErrorBound(len(numbers.primes)) if bound is None else bound
        self.sizes = SizeLedger(numbers.from_integers)
        self._symbolic_sizes = symbolic_sizes
        # the terms of roots that programs round to a literal, by the bytes of the literal
        self._roots: dict[bytes, Term] = {}
        # the sizes that a program has converted to floats, by the elements of the result
        self._sizes_of_floats: dict[bytes, Sizes] = {}
        # for the literals of a root and its inverse: the bytes of the other one
        self._inverses: dict[bytes, bytes] = {}

    # ---- values

    def term(self, value: Value) -> Term:
        """The field elements of a value.

        An infinity is a number like any other: one that no program computes.
        """
        if isinstance(value, Term):
            return value
        if isinstance(value, Sizes):
            return value.term
        array = np.asarray(value)
        if array.dtype.kind in "biu":
            # abs of the smallest int64 would be negative
            largest = max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
            kind = kind_of(array)
            return Term(
                self.numbers.from_integers(array), kind, Size(norm=math.log2(max(1, largest))), kind == "b"
            )
        if array.dtype.kind != "f":
            raise UndecidedError("a tensor whose length depends on the input")
        if np.isnan(array).any():
            raise UndecidedError("a constant is NaN")
        large = is_infinite(array)
        if large.any():
            return self._with_infinities(array, large)
        root = self._roots.get(array.tobytes()) if array.size == 1 else None
        if root is not None:
            return self.move(root, lambda data: data.reshape(array.shape))
        return Term(self.numbers.from_floats(array), "f", size_of(array))

    def _with_infinities(self, array: Array, large: Array) -> Term:
        finite = self.term(np.where(large, np.zeros((), array.dtype), array))
        zeros = self.numbers.from_integers(np.zeros(array.shape, np.int64))
        data = finite.data
        # a mask with the largest number differs from one with infinities where it hides a whole row
        for name, places in (("infinity", np.isinf(array)), ("largest number", large & np.isfinite(array))):
            if places.any():
                number = self.numbers.function(name, [zeros])
                negated = self.numbers.subtract(np.zeros_like(number), number)
                data = np.where(places, np.where(array < 0, negated, number), data)
        return Term(data, "f", finite.size.plus(ATOM))

    def part(self, value: Value, number: int) -> Array:
        """The elements of a value modulo one of the primes: the smallest form of large weights."""
        if isinstance(value, Term | Sizes):
            return self.term(value).data[number]
        array = np.asarray(value)
        if array.dtype.kind == "f" and array.size > 1 and self.numbers.weights.of(array).is_finite:
            return self.numbers.from_floats_modulo(array, number)
        return self.term(array).data[number]

    def size(self, value: Value) -> Size:
        """The bounds of a value, without the elements of a large array."""
        if isinstance(value, Term | Sizes):
            return self.term(value).size
        array = np.asarray(value)
        if array.dtype.kind != "f" or array.size < 2:
            return self.term(value).size
        weight = self.numbers.weights.of(array)
        return weight.size if weight.is_finite else self.term(value).size

    @overload
    def move(self, value: Term, function: Callable[[Array], Array]) -> Term: ...
    @overload
    def move(self, value: Sizes, function: Callable[[Array], Array]) -> Sizes: ...
    @overload
    def move(self, value: Known, function: Callable[[Array], Array]) -> Array: ...
    def move(self, value: Value, function: Callable[[Array], Array]) -> Value:
        """Apply a function that only moves, repeats or drops numbers."""
        if isinstance(value, Term):
            data = np.stack([function(part) for part in value.data])
            result = Term(data, value.kind, value.size, value.is_binary)
            self._note_move(result, value, function)
            return result
        if isinstance(value, Sizes):
            moved = self.move(value.term, function)
            return Sizes(function(value.numbers), moved, value.ledger, value.is_growing)
        return function(np.asarray(value))

    def _note_move(self, result: Term, value: Term, function: Callable[[Array], Array]) -> None:
        """Note how the elements of a result were moved: nothing here."""

    def sizes_of(self, value: Value) -> Value:
        """The shape of a tensor, as the program reads it."""
        numbers = np.array(shape_of(value), np.int64)
        if not self._symbolic_sizes:
            return numbers
        return Sizes(numbers, self._read_sizes(numbers), self.sizes, is_growing=True)

    def _read_sizes(self, numbers: Array) -> Term:
        """An atom for each size. All tensors of one size have the same."""
        data = self.numbers.function("size", [self.numbers.from_integers(numbers)])
        # a graph may shape its tensors like any other one
        self.sizes.allow(data)
        return Term(data, "i", ATOM)

    def of_this_run(self, name: str, numbers: Array) -> Value:
        """Integers that may be others for other sizes: positions, and what is counted along an axis.

        They stand for random functions of the numbers of this run, so that no comparison or polynomial with
        them is known.
        """
        if not self._symbolic_sizes:
            return numbers
        data = self.numbers.function(f"of this run: {name}", [self.numbers.from_integers(numbers)])
        return Sizes(numbers, Term(data, "i", ATOM), self.sizes)

    def integers(
        self, function: Callable[..., Any], symbolic: Callable[..., Value], *values: Value
    ) -> Value | None:
        """The result of arithmetic on known integers and sizes; None if any of the values is something else.

        Args:
            function: Computes with the numbers of this run.
            symbolic: Computes with terms, for sizes.
            values: The operands.
        """
        if any(isinstance(value, Term) or kind_of(value) == "f" for value in values):
            return None
        numbers = [value.numbers if isinstance(value, Sizes) else np.asarray(value) for value in values]
        result = np.asarray(function(*numbers))
        if not any(isinstance(value, Sizes) for value in values):
            return result
        is_growing = function in GROWING and all(map(is_growing_size, values))
        term = self.term(symbolic(*(self.term(value) for value in values)))
        return Sizes(result, term, self.sizes, is_growing)

    def pair(self, a: Term, b: Term) -> tuple[Array, Array]:
        """The elements of two terms, of one rank, so that NumPy can broadcast them."""
        rank = max(a.ndim, b.ndim)
        return with_rank(a.data, rank), with_rank(b.data, rank)


def is_growing_size(value: Value) -> bool:
    return value.is_growing if isinstance(value, Sizes) else bool((np.asarray(value) >= 0).all())


def is_everywhere(value: Value, number: int) -> bool:
    """Whether a value is known before the run, and is this number in all places."""
    return not isinstance(value, Term | Sizes) and bool((np.asarray(value) == number).all())


def is_infinite(value: Value) -> Array:
    """Where a known value is infinite. The largest float32 counts: masks are written with either."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return np.zeros(array.shape, bool)
    return np.abs(array) >= np.finfo(np.float32).max


def with_rank(data: Array, rank: int) -> Array:
    """Elements with axes of size 1 before those of the tensor, so that it has this rank."""
    return data.reshape(data.shape[0], *(1,) * (rank - data.ndim + 1), *data.shape[1:])
