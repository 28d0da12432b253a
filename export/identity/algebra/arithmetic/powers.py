"""Exponentials, logarithms, roots and what is made of them, in one normal form.

Results that are recognized by notes: exp(a) * exp(b) is exp(a + b), log(exp(x)) is x, and a softmax depends
on the differences of its numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from turnpike.export.identity.algebra.arithmetic.notes import Notes
from turnpike.export.identity.algebra.arithmetic.selections import Selections, is_float
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    Value,
    joint_kind,
    kind_of,
    shape_of,
)
from turnpike.export.identity.algebra.arithmetic.values import Numbers, Options, is_everywhere

# whole exponents up to here are products
MAX_EXPONENT = 64


@dataclass(frozen=True)
class SumOfPowers:
    """The exponents of a sum of exponentials, and the axes of the sum, from the first on."""

    exponents: Term
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def axis(self) -> int | None:
        """The axis of a softmax with this divisor."""
        return self.axes[0] if self.keepdims and len(self.axes) == 1 else None


class Powers(Selections):
    """Functions that are made of exponentials, and powers."""

    def __init__(self, numbers: Numbers, **options: Unpack[Options]) -> None:
        super().__init__(numbers, **options)
        # for exp(x), log(x), sqrt(x), x * x: x
        self._powers: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        self._logarithms: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        self._square_roots: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        self._squares: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        # for sigmoid(x) and sigmoid(-x): x, and 1 or -1
        self._sigmoids: Notes[tuple[Term, int]] = Notes(self.bound, exact=self.numbers.exact)
        # for 1 / x: x
        self._reciprocals: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        # for exp(a) + exp(b): both; 1 is exp(0)
        self._pairs: Notes[tuple[Value, Term]] = Notes(self.bound, exact=self.numbers.exact)
        # for a sum of exponentials, and for its logarithm
        self._sums: Notes[SumOfPowers] = Notes(self.bound, exact=self.numbers.exact)
        self._logarithms_of_sums: Notes[SumOfPowers] = Notes(self.bound, exact=self.numbers.exact)
        # for a softmax: its numbers and its axis
        self._softmaxes: Notes[tuple[Term, int]] = Notes(self.bound, exact=self.numbers.exact)

    # ---- sums and products

    def add(self, a: Value, b: Value) -> Value:
        result = super().add(a, b)
        for value, other in ((a, b), (b, a)):
            exponent = self._powers.get(value)
            if exponent is not None and is_everywhere(other, 1) and shape_of(result) == exponent.shape:
                self._pairs.add(result, (0, exponent))
        exponents = self._powers.get(a), self._powers.get(b)
        if exponents[0] is not None and exponents[1] is not None:
            self._pairs.add(result, (exponents[0], exponents[1]))
        return result

    def subtract(self, a: Value, b: Value) -> Value:
        result = super().subtract(a, b)
        found = self._sigmoids.get(b) if is_everywhere(a, 1) else None
        if found is not None:
            # 1 - sigmoid(x) is sigmoid(-x)
            self._sigmoids.add(result, (found[0], -found[1]))
            self._not_negative.add(result, True)
        return result

    def note_sum(self, result: Value, summed: Value, axes: tuple[int, ...], *, keepdims: bool) -> None:
        """Note that a result is the sum of a value along axes."""
        if self.is_not_negative(summed):
            self._not_negative.add(result, True)
        if (exponents := self._powers.get(summed)) is not None:
            self._sums.add(result, SumOfPowers(exponents, axes, keepdims))

    def multiply(self, a: Value, b: Value) -> Value:
        if self.normalizes and isinstance(a, Term) and isinstance(b, Term):
            for value, other in ((a, b), (b, a)):
                for law in (self._times_power, self._quotient):
                    if (found := law(value, other)) is not None:
                        return found
            if a.shape == b.shape and self.is_same(a, b):
                return self._square(a)
        return super().multiply(a, b)

    def _times_power(self, value: Term, power: Term) -> Value | None:
        """A product with exp(exponent)."""
        exponent = self._powers.get(power)
        if exponent is None:
            return None
        if (other := self._powers.get(value)) is not None:
            return self.exp(self.add(other, exponent))
        divisor = self._reciprocals.get(value)
        if divisor is not None and (share := self._share(power, divisor)) is not None:
            return share
        total = self._sums.get(divisor) if divisor is not None else None
        if total is not None and total.axis is not None and self.is_same(total.exponents, exponent):
            return self.softmax(exponent, total.axis)
        return None

    def _share(self, power: Value, divisor: Term) -> Value | None:
        """exp(a) / (exp(a) + exp(b)) is the sigmoid of a - b."""
        pair, exponent = self._pairs.get(divisor), self._powers.get(power)
        if pair is None or exponent is None:
            return None
        for first, second in (pair, pair[::-1]):
            if isinstance(first, Term) and self.is_same(first, exponent):
                return self.sigmoid(self.subtract(first, second))
        return None

    def _quotient(self, value: Term, inverse: Term) -> Value | None:
        """(x + a) / (x + b) is 1 + (a - b) / (x + b), if the divisor is above zero."""
        divisor = self._reciprocals.get(inverse)
        if divisor is None or value.shape != divisor.shape:
            return None
        formula = self.formulas.get(value)
        if formula is not None and formula.name in ("add", "subtract"):
            shares = [self._share(operand, divisor) for operand in formula.operands]
            if shares[0] is not None and shares[1] is not None:
                return formula.compute(*shares)
        top, bottom = self.line(value), self.line(divisor)
        is_positive = bottom.factor > 0 and bottom.offset > 0 and self.is_not_negative(bottom.base)
        if not top.factor or not is_positive or not self.is_same(top.base, bottom.base):
            return None
        ratio = top.factor / bottom.factor
        rest = top.offset - ratio * bottom.offset
        if not (is_float(ratio) and is_float(rest)):
            return None
        return self.add(self.term(float(ratio)), self.product(np.float64(float(rest)), inverse))

    def _square(self, a: Term) -> Value:
        value = self._absolutes.get(a)
        if value is not None:
            return self.multiply(value, value)
        radicand = self._square_roots.get(a)
        if radicand is not None and self.is_not_negative(radicand):
            return radicand
        divisor = self._reciprocals.get(a)
        radicand = self._square_roots.get(divisor) if divisor is not None else None
        if radicand is not None and self.is_not_negative(radicand):
            return self.reciprocal(radicand)
        result = super().multiply(a, a)
        self._not_negative.add(result, True)
        self._squares.add(result, a)
        return result

    def reciprocal(self, a: Value) -> Value:
        pair = self._pairs.get(a)
        exponent = self._powers.get(a) if self.normalizes else None
        divisor = self._reciprocals.get(a) if self.normalizes else None
        if pair is not None and not isinstance(pair[0], Term):
            # 1 / (1 + exp(-x)) is the sigmoid of x
            result = self.sigmoid(self.negate(pair[1]))
        elif exponent is not None:
            result = self.exp(self.negate(exponent))
        elif divisor is not None:
            result = divisor
        else:
            result = super().reciprocal(a)
        if isinstance(a, Term):
            self._reciprocals.add(result, a)
        return result

    def power(self, a: Value, exponent: Value) -> Value:
        """a to the power of an exponent; a whole one makes products, and a half a square root."""
        if not isinstance(exponent, Term | Sizes) and np.size(exponent) == 1:
            number = float(np.reshape(exponent, ()))
            if number == int(number) and abs(number) <= MAX_EXPONENT:
                return self._whole_power(a, int(number))
            if 2 * number == int(2 * number) and abs(number) <= MAX_EXPONENT:
                root = self.sqrt(a)
                whole = math.floor(abs(number))
                result = self.multiply(self._whole_power(a, whole), root) if whole else root
                return result if number > 0 else self.reciprocal(result)
        return self.function("pow", a, exponent)

    def _whole_power(self, a: Value, exponent: int) -> Value:
        if exponent == 0:
            return np.ones(shape_of(a), np.float32 if kind_of(a) == "f" else np.int64)
        result = a
        for _ in range(abs(exponent) - 1):
            result = self.multiply(result, a)
        return result if exponent > 0 else self.reciprocal(result)

    # ---- functions

    def _center(self, term: Term) -> tuple[Term, int]:
        """The sign of exp(x) - 1 is that of x."""
        line = self.line(term)
        exponent = self._powers.get(line.base)
        if self.normalizes and exponent is not None and line.factor and line.offset == -line.factor:
            center, factor = super()._center(exponent)
            return center, factor if line.factor > 0 else -factor
        return super()._center(term)

    def exp(self, a: Value) -> Value:
        if self.normalizes and (simpler := self._simpler_exp(a)) is not None:
            result = simpler
        else:
            result = self.function("exp", a)
            self.formulas.add(result, "exp", self.exp, a)
        self._powers.add(result, self.term(a))
        self._not_negative.add(result, True)
        return result

    def _simpler_exp(self, a: Value) -> Value | None:
        if is_everywhere(a, 0) or (isinstance(a, Term) and self.is_zero_everywhere(a)):
            return self.term(np.ones(shape_of(a), np.float32))
        number = self._logarithms.get(a)
        if number is not None and self.is_not_negative(number):
            return number
        formula = self.formulas.get(a)
        if formula is not None and formula.name == "subtract":
            exponents, logarithm = formula.operands
            total = self._logarithms_of_sums.get(logarithm)
            if total is not None and total.axis is not None and self.is_same(total.exponents, exponents):
                return self.softmax(exponents, total.axis)
            divisor = self._logarithms.get(logarithm)
            if divisor is not None and self.is_not_negative(divisor):
                return self.divide(self.exp(exponents), divisor)
        return self.split(self.exp, a)

    def log(self, a: Value) -> Value:
        if self.normalizes and (simpler := self._simpler_log(a)) is not None:
            result = simpler
        else:
            result = self.function("log", a)
            self.formulas.add(result, "log", self.log, a)
        if isinstance(a, Term):
            self._logarithms.add(result, a)
            if (total := self._sums.get(a)) is not None:
                self._logarithms_of_sums.add(result, total)
        return result

    def _simpler_log(self, a: Value) -> Value | None:
        if (exponent := self._powers.get(a)) is not None:
            return exponent
        if (pair := self._pairs.get(a)) is not None:
            # log(exp(a) + exp(b)) is a + log(1 + exp(b - a))
            return self.add(pair[0], self._softplus(self.subtract(pair[1], pair[0])))
        if (gate := self._sigmoids.get(a)) is not None:
            return self.negate(self._softplus(self.multiply(-gate[1], gate[0])))
        if (found := self._softmaxes.get(a)) is not None:
            return self.log_softmax(*found)
        if (total := self._sums.get(a)) is not None:
            return self._log_of_sum(total)
        return self.split(self.log, a)

    def _softplus(self, a: Value) -> Value:
        """log(1 + exp(a)): a / 2 and an even function."""
        result = self.split(self._softplus, a)
        if result is None:
            result = self.add(self.scale(a, 1, 2), self.even_function("softplus - x/2", a))
        self._not_negative.add(result, True)
        return result

    def sqrt(self, a: Value) -> Value:
        result: Value
        square, divisor = (notes.get(a) for notes in (self._squares, self._reciprocals))
        exponent = self._powers.get(a)
        if self.normalizes and square is not None:
            result = self.absolute(square)
        elif self.normalizes and divisor is not None:
            result = self.reciprocal(self.sqrt(divisor))
        elif self.normalizes and exponent is not None:
            result = self.exp(self.scale(exponent, 1, 2))
        else:
            result = self.function("sqrt", a)
            self.formulas.add(result, "sqrt", self.sqrt, a)
        self._not_negative.add(result, True)
        if isinstance(a, Term):
            self._square_roots.add(result, a)
        return result

    def sigmoid(self, a: Value) -> Value:
        result = self.add(self.odd_function("sigmoid - 1/2", a), np.float32(0.5))
        self._sigmoids.add(result, (self.term(a), 1))
        self._not_negative.add(result, True)
        return result

    def tanh(self, a: Value) -> Value:
        """tanh(a) = 2 sigmoid(2a) - 1, and tanh(log(x)) = 1 - 2 / (1 + x * x)."""
        number = self._logarithms.get(a) if self.normalizes else None
        if number is not None and self.is_not_negative(number):
            share = self.reciprocal(self.add(1, self.multiply(number, number)))
            return self.subtract(1, self.multiply(2, share))
        return self.multiply(2, self.odd_function("sigmoid - 1/2", self.multiply(2, a)))

    # ---- softmax

    def softmax(self, a: Value, axis: int) -> Value:
        """The shares of exponentials: of two numbers, they are sigmoids of the difference."""
        x = self.term(a)
        axis %= x.ndim
        if not self.normalizes:
            powers = self.exp(x)
            return self.divide(powers, self._sum(powers, (axis,), keepdims=True))
        count = x.shape[axis]
        if count == 1:
            result = self.term(np.ones(x.shape, np.float32))
        elif count == 2:
            signs = np.array([1, -1]).reshape(2, *(1,) * (x.ndim - axis - 1))
            difference = self.subtract(_at(self, x, (axis,), 0), _at(self, x, (axis,), 1))
            result = self.term(self.sigmoid(self.product(signs, difference)))
        else:
            powers = self.function("exp", self.subtract(x, self._reference(x, (axis,))))
            total = self._sum(powers, (axis,), keepdims=True)
            result = self.product(powers, self.odd_function("1/x", total))
        self._softmaxes.add(result, (x, axis))
        self._not_negative.add(result, True)
        return result

    def log_softmax(self, a: Value, axis: int) -> Value:
        result = self.subtract(a, self.log_sum_exp(a, (axis % len(shape_of(a)),), keepdims=True))
        if self.normalizes:
            self._logarithms.add(result, self.term(self.softmax(a, axis)))
        return result

    def log_sum_exp(self, a: Value, axes: tuple[int, ...], *, keepdims: bool) -> Value:
        x = self.term(a)
        if not self.normalizes:
            return self.log(self._sum(self.exp(x), axes, keepdims=keepdims))
        total = SumOfPowers(x, axes, keepdims)
        result = self._log_of_sum(total)
        self._logarithms_of_sums.add(result, total)
        return result

    def _log_of_sum(self, total: SumOfPowers) -> Value:
        """The first number, and the logarithm of the sum of exponentials of distances from it."""
        x, axes = total.exponents, total.axes
        first = self._reference(x, axes)
        count = math.prod(x.shape[axis] for axis in axes)
        if count == 1:
            result: Value = first
        elif count == 2 and len(axes) == 1:
            start = _at(self, x, axes, 0)
            result = self.add(start, self._softplus(self.subtract(_at(self, x, axes, 1), start)))
        else:
            powers = self.function("exp", self.subtract(x, first))
            result = self.add(first, self.function("log", self._sum(powers, axes, keepdims=True)))
        if total.keepdims:
            return result
        return self.move(result, lambda data: data.squeeze(axes))

    def _reference(self, x: Term, axes: tuple[int, ...]) -> Term:
        """A number along axes from which the others are counted: any does."""
        if self.numbers.exact:
            return _at(self, x, axes, 0)
        # from the largest, so that no exponential overflows
        largest = x.data.max(tuple(axis + 1 for axis in axes), keepdims=True)
        return Term(largest, x.kind, x.size)

    def _sum(self, a: Value, axes: Sequence[int], *, keepdims: bool) -> Term:
        term = self.term(a)
        size = term.size.summed(math.prod(term.shape[axis] for axis in axes))
        return Term(self.numbers.sum(term.data, axes, keepdims=keepdims), joint_kind(term), size)


def _at(algebra: Powers, value: Term, axes: Sequence[int], index: int) -> Term:
    """The part of a value at an index of axes, which stay with size 1."""

    def part(data: Array) -> Array:
        places = tuple(slice(index, index + 1) if axis in axes else slice(None) for axis in range(data.ndim))
        return data[places]

    return algebra.move(value, part)
