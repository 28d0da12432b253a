"""The operators of programs on values: comparisons, logic, casts, and all that their parts have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turnpike.export.identity.algebra.arithmetic.powers import Powers
from turnpike.export.identity.algebra.arithmetic.terms import (
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    shape_of,
)

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


class Algebra(Powers):
    """Operators on values. Known integers stay known, sizes stay sizes; all other results are terms."""

    def compare(self, a: Value, b: Value, how: str) -> Value:
        """Whether a is "gt", "ge", "lt", "le", "eq" or "ne" than b."""
        function = COMPARISONS[how]
        if (result := self.integers(function, lambda x, y: self.compare(x, y, how), a, b)) is not None:
            return result
        if not isinstance(a, Term | Sizes) and not isinstance(b, Term | Sizes):
            return np.asarray(function(a, b))
        if how in ("eq", "ne"):
            equal = self.is_zero(self.subtract(a, b))
            return self.condition(equal if how == "eq" else self.subtract(1, equal))
        larger, smaller = (b, a) if how[0] == "l" else (a, b)
        return self.is_above(larger, smaller, strictly=how[1] == "t")

    def both(self, a: Value, b: Value) -> Value:
        """Whether two conditions hold: numbers other than 0 and 1 need a cast to booleans before."""
        if (result := self.integers(np.logical_and, self.both, a, b)) is not None:
            return result
        return self.condition(self.multiply(a, b))

    def either(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.logical_or, self.either, a, b)) is not None:
            return result
        return self.condition(self.subtract(self.add(self.term(a), b), self.multiply(a, b)))

    def negation(self, a: Value) -> Value:
        if (result := self.integers(np.logical_not, self.negation, a)) is not None:
            return result
        return self.condition(self.subtract(1, a))

    def truncate(self, a: Value) -> Value:
        """The whole part: sign(a) * floor(|a|)."""
        return self.multiply(self.sign(a), self.function("floor", self.absolute(a)))

    def either_branch(self, condition: Value, a: Value, b: Value) -> Value:
        """A result of two branches, of which a condition takes one."""
        if shape_of(a) != shape_of(b):
            raise UndecidedError("a condition whose branches have results of different shapes")
        return self.where(condition, a, b)

    def cast(self, a: Value, dtype: Any) -> Value:
        """A float that becomes an integer loses its fraction, and a narrow integer wraps: both are functions.

        Casts between floats round, which is not decided here. 32 bits are taken to hold every integer.
        """
        kind = kind_of(np.zeros(0, dtype))
        if isinstance(a, Sizes):
            if kind == "i" and (np.dtype(dtype).itemsize < 4 or np.dtype(dtype).kind == "u"):
                wrapped = self.function(f"wrap to {np.dtype(dtype)}", a, kind="i")
                return Sizes(a.numbers.astype(dtype).astype(np.int64), wrapped, self.sizes)
            if kind == kind_of(a):
                return a
            self._sizes_of_floats[a.term.data.tobytes()] = a
            a = a.term
        if not isinstance(a, Term):
            return np.asarray(a).astype(dtype)
        if kind == "b" and a.kind != "b" and not a.is_binary:
            return self.compare(a, 0, "ne")
        if kind == "i" and not a.is_binary:
            if a.kind == "f":
                a = self.of_kind(self.truncate(a), "i")
            if np.dtype(dtype).itemsize < 4 or np.dtype(dtype).kind == "u":
                return self.function(f"wrap to {np.dtype(dtype)}", a, kind="i")
        return Term(a.data, kind, a.size, a.is_binary)

    def as_sizes(self, value: Value) -> Value:
        """The sizes that were converted to these floats; any other value as it is."""
        if isinstance(value, Term):
            return self._sizes_of_floats.get(value.data.tobytes(), value)
        return value

    def floor_quotient(self, a: Value, b: Value) -> Value:
        """floor(a / b), of floats."""
        return self.function("floor", self.divide(a, b))
