"""Random functions of values, and what is known about their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Unpack

import numpy as np

from turnpike.export.identity.algebra.arithmetic.notes import Formulas, Notes, sample
from turnpike.export.identity.algebra.arithmetic.terms import (
    Sizes,
    Term,
    Value,
    digest_of,
    joint_kind,
    kind_of,
)
from turnpike.export.identity.algebra.arithmetic.values import (
    Numbers,
    Options,
    Values,
    is_infinite,
    with_rank,
)
from turnpike.export.identity.numbers.error_bound import ATOM


class Functions(Values):
    """Functions that are no polynomials, each applied once to equal arguments."""

    def __init__(self, numbers: Numbers, **options: Unpack[Options]) -> None:
        self.formulas = Formulas()
        super().__init__(numbers, **options)
        # for the number of true places of a mask: the mask, with one axis
        self.counts: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        # results of costly operators, by the operator and the digests of its operands
        self._results: dict[tuple[object, ...], Term] = {}
        # terms that are nowhere below zero
        self._not_negative: Notes[bool] = Notes(self.bound, exact=self.numbers.exact)
        # terms that are one rational number
        self._fractions: Notes[Fraction] = Notes(self.bound, exact=self.numbers.exact)

    def once(
        self, operator: tuple[object, ...], operands: Sequence[Value], compute: Callable[[], Term]
    ) -> Term:
        """The result of a costly operator, which the other program has nearly always computed before.

        Args:
            operator: The name and the attributes of the operator.
            operands: The operands.
            compute: Computes the result.
        """
        key = (operator, *(_digest(operand) for operand in operands))
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    # ---- functions

    def function(self, name: str, *arguments: Value, kind: str = "f") -> Term:
        """A function that is no polynomial."""
        terms = [self.term(argument) for argument in arguments]

        def compute() -> Term:
            rank = max(term.ndim for term in terms)
            data = self.numbers.function(name, [with_rank(term.data, rank) for term in terms])
            for term in terms:
                self.bound.count_function(name, data[0].size, term.size)
            return Term(data, kind, ATOM, is_binary=kind == "b")

        result = self.once(("function", name, kind), terms, compute)
        if self.formulas.get(result) is None:
            self.formulas.add(result, name, partial(self.function, name, kind=kind), *arguments)
        return result

    def integer_function(self, name: str, function: Callable[..., Any], a: Value, b: Value) -> Value:
        """A function of integers or floats that is no polynomial, such as a remainder."""
        kind = joint_kind(a, b)
        if (
            result := self.integers(function, lambda x, y: self.function(name, x, y, kind=kind), a, b)
        ) is not None:
            return result
        return self.function(name, a, b, kind=kind)

    def odd_function(self, name: str, a: Value) -> Term:
        """A function with f(-x) = -f(x)."""
        term = self.term(a)

        def compute() -> Term:
            # x is compared with y and with -y
            self.bound.count_function(name, 2 * term.data[0].size, term.size)
            return Term(self.numbers.odd_function(name, term.data), "f", ATOM)

        result = self.once(("odd", name), [term], compute)
        if self.formulas.get(result) is None:
            self.formulas.add(result, name, partial(self.odd_function, name), a)
        return result

    def even_function(self, name: str, a: Value) -> Term:
        """A function with f(-x) = f(x)."""
        term = self.term(a)

        def compute() -> Term:
            self.bound.count_function(name, 2 * term.data[0].size, term.size)
            return Term(self.numbers.even_function(name, term.data), "f", ATOM)

        result = self.once(("even", name), [term], compute)
        if self.formulas.get(result) is None:
            self.formulas.add(result, name, partial(self.even_function, name), a)
        return result

    # ---- facts about values

    def fraction(self, value: Value) -> Fraction | None:
        """The rational number that a value is everywhere, known before the run; or None."""
        if isinstance(value, Term):
            return self._fractions.get(value)
        if isinstance(value, Sizes) or not np.size(value):
            return None
        array = np.asarray(value).reshape(-1)
        # most other arrays have another last number
        if array[0] != array[-1] or not (array == array[0]).all():
            return None
        array = array[:1]
        if array.dtype.kind != "f":
            return Fraction(int(array[0]))
        if not np.isfinite(array).all() or is_infinite(array).any() or array.tobytes() in self._roots:
            return None
        return Fraction(float(array[0]))

    def is_not_negative(self, value: Value) -> bool:
        """Whether a value is known to be nowhere below zero, whatever the inputs are."""
        if isinstance(value, Term):
            return value.is_binary or bool(self._not_negative.get(value))
        return not isinstance(value, Sizes) and bool((np.asarray(value) >= 0).all())

    def is_same(self, a: Value, b: Value) -> bool:
        """Whether two values have the same elements and shape."""
        x, y = self.term(a), self.term(b)
        if x.data is y.data:
            return True
        # most others differ in the first element
        if x.shape != y.shape or sample(x.data) != sample(y.data) or not np.array_equal(x.data, y.data):
            return False
        self.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        return True

    def is_opposite(self, a: Value, b: Value) -> bool:
        """Whether two values have the same shape, and their sum is zero for every input."""
        x, y = self.term(a), self.term(b)
        if x.shape != y.shape:
            return False
        for part in (slice(1), slice(None)):
            flat = [term.data.reshape(len(term.data), -1)[:, part] for term in (x, y)]
            if self.numbers.add(*flat).any():
                return False
        self.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        return True

    def is_zero_everywhere(self, value: Value) -> bool:
        """Whether a value is zero for every input."""
        term = self.term(value)
        if term.data.any():
            return False
        self.bound.count_comparison(max(1, term.data[0].size), term.size)
        return True

    def of_kind(self, value: Value, kind: str) -> Term:
        """A value that a formula with fractions computes, in the kind of the result."""
        term = self.term(value)
        return Term(term.data, kind, term.size, term.is_binary)


def _digest(value: Value) -> tuple[object, ...]:
    """A digest of the elements or bits of a value, and its shape and kind."""
    if isinstance(value, Sizes):
        value = value.term
    if isinstance(value, Term):
        return value.digest, value.data.dtype.str, value.data.shape, value.kind
    array = np.asarray(value)
    return digest_of(array), array.dtype.str, array.shape, kind_of(array)
