"""Signs, absolute values, extrema and selections by a condition, in one normal form.

A condition such as x > 3 has two atoms: the sign of x - 3, and whether it is zero. A selection by it becomes
N + (P - N) * (1 + sign) / 2, where P is the value for x > 3, computed with that knowledge, and N the other
one. So `where(x > 0, x, 0)`, `max(x, 0)` and `(x + |x|) / 2` have equal elements. If P and N differ at 3, the
condition needs its second atom, too: x > 3 and x >= 3 select differently there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Unpack

import numpy as np

from turnpike.export.identity.algebra.arithmetic.notes import Formula, Notes
from turnpike.export.identity.algebra.arithmetic.sums import Line, Sums
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    Value,
    joint_kind,
    kind_of,
    shape_of,
)
from turnpike.export.identity.algebra.arithmetic.values import Numbers, Options, is_everywhere, is_infinite


class Selections(Sums):
    """Operators that choose between values."""

    def __init__(self, numbers: Numbers, **options: Unpack[Options]) -> None:
        super().__init__(numbers, **options)
        # for a condition: a value, 1 or -1, and whether it holds where their product is above zero
        self._conditions: Notes[tuple[Term, int, bool]] = Notes(self.bound, exact=self.numbers.exact)
        # for |x|: x
        self._absolutes: Notes[Term] = Notes(self.bound, exact=self.numbers.exact)
        # for min(x, c) and max(x, c), with a known c: both
        self._limited: Notes[tuple[Value, Array]] = Notes(self.bound, exact=self.numbers.exact)
        self._raised: Notes[tuple[Value, Array]] = Notes(self.bound, exact=self.numbers.exact)
        # numbers that terms are nowhere below, or nowhere above
        self._lowest: Notes[Array] = Notes(self.bound, exact=self.numbers.exact)
        self._highest: Notes[Array] = Notes(self.bound, exact=self.numbers.exact)

    # ---- signs

    def sign(self, a: Value) -> Value:
        """The sign of a multiple of a value is that of the value."""
        center, factor = self._center(self.term(a))
        if (number := self.number(center)) is not None:
            return np.full(center.shape, (number > 0) - (number < 0), np.float32)
        result = self.odd_function("sign", center)
        self.formulas.add(result, "sign", self.sign, center)
        return result if factor > 0 else self.negate(result)

    def is_zero(self, a: Value) -> Value:
        center, _ = self._center(self.term(a))
        if (number := self.number(center)) is not None:
            return np.full(center.shape, number == 0, np.float32)
        result = self.even_function("is zero", center)
        self.formulas.add(result, "is zero", self.is_zero, center)
        return result

    def number(self, term: Term) -> Fraction | None:
        """The number that a value is for every input, or None."""
        line = self.line(term)
        return None if line.factor else line.offset

    def _center(self, term: Term) -> tuple[Term, int]:
        """A value of the same sign, or of the opposite one: the same for all multiples; and 1 or -1."""
        line = self.line(term)
        if not line.factor:
            return term, 1
        shift = line.offset / line.factor
        if not is_float(shift):
            return term, 1
        center = self.term(self.add(line.base, np.float64(float(shift)))) if shift else line.base
        side = self._center_of_selection(center)
        center, factor = (center, 1) if side is None else self._center(self.term(side))
        return center, factor if line.factor > 0 else -factor

    def _center_of_selection(self, center: Term) -> Value | None:
        """A simpler value with the same sign everywhere: x - 2 for max(x, 1) - 2, which is -1 on one side."""
        other, above, below = self._sides(center)
        if other is None:
            return None
        for factor, there, elsewhere in ((1, above, below), (-1, below, above)):
            number = self.number(self.term(there))
            if number is not None:
                sign = np.full(center.shape, (number > 0) - (number < 0), np.float32)
                if self.is_same(self._on_side(other, factor, self.sign(elsewhere)), sign):
                    return elsewhere
        return None

    def absolute(self, a: Value) -> Value:
        """|a| = a * sign(a)."""
        if (result := self.integers(np.abs, self.absolute, a)) is not None:
            return result
        if self._not_negative.get(a):
            return a
        result = self.of_kind(self.product(a, self.sign(a)), kind_of(a))
        self._not_negative.add(result, True)
        self._absolutes.add(result, self.term(a))
        return result

    # ---- extrema

    def maximum(self, a: Value, b: Value) -> Value:
        """max(a, b) = (a + b + |a - b|) / 2."""
        if (result := self.integers(np.maximum, self.maximum, a, b)) is not None:
            return result
        for value, other in ((a, b), (b, a)):
            if self._not_negative.get(value) and is_everywhere(other, 0) and _is_like(value, a, b):
                return value
            lowest = self._lowest.get(value)
            if lowest is not None and _is_at_most(other, lowest) and _is_like(value, a, b):
                return value
            limited = self._limited.get(value)
            if limited is not None and _is_at_most(other, limited[1]):
                return self._between(limited[0], np.asarray(other), limited[1], joint_kind(a, b))
        larger = self._half(self.add(self.add(a, b), self.absolute(self.subtract(a, b))), joint_kind(a, b))
        if any(self._not_negative.get(value) or is_everywhere(value, 0) for value in (a, b)):
            self._not_negative.add(larger, True)
        for value, other in ((a, b), (b, a)):
            if not isinstance(other, Term | Sizes):
                self._raised.add(larger, (value, np.asarray(other)))
                self._lowest.add(larger, np.asarray(other))
        return larger

    def minimum(self, a: Value, b: Value) -> Value:
        """min(a, b) = (a + b - |a - b|) / 2."""
        if (result := self.integers(np.minimum, self.minimum, a, b)) is not None:
            return result
        for value, other in ((a, b), (b, a)):
            highest = self._highest.get(value)
            if highest is not None and _is_at_most(highest, other) and _is_like(value, a, b):
                return value
            raised = self._raised.get(value)
            if raised is not None and _is_at_most(raised[1], other):
                return self._between(raised[0], raised[1], np.asarray(other), joint_kind(a, b))
        distance = self.absolute(self.subtract(a, b))
        smaller = self._half(self.subtract(self.add(a, b), distance), joint_kind(a, b))
        for value, other in ((a, b), (b, a)):
            if not isinstance(other, Term | Sizes):
                self._limited.add(smaller, (value, np.asarray(other)))
                self._highest.add(smaller, np.asarray(other))
        return smaller

    def _between(self, value: Value, low: Array, high: Array, kind: str) -> Term:
        """A value cut at known limits, the lower of which is nowhere above the other one.

        (low + high + |value - low| - |value - high|) / 2, for both orders of maximum and minimum.
        """
        distances = self.subtract(
            self.absolute(self.subtract(value, low)), self.absolute(self.subtract(value, high))
        )
        # as terms: an infinity would absorb the rest
        limits = self.add(self.term(low), self.term(high))
        result = self._half(self.add(limits, distances), kind)
        if (low >= 0).all():
            self._not_negative.add(result, True)
        self._lowest.add(result, low)
        self._highest.add(result, high)
        return result

    def _half(self, value: Value, kind: str) -> Term:
        return self.of_kind(self.scale(value, 1, 2), kind)

    def clip(self, a: Value, low: Value | None = None, high: Value | None = None) -> Value:
        """A limit that is infinite everywhere is none."""
        for limit, function in ((low, self.maximum), (high, self.minimum)):
            if limit is not None and (isinstance(limit, Term | Sizes) or not is_infinite(limit).all()):
                a = function(a, limit)
        return a

    # ---- conditions are 0 or 1

    def is_above(self, a: Value, b: Value, *, strictly: bool) -> Term:
        """Whether a > b, or a >= b."""
        difference = self.term(self.subtract(a, b))
        sign, equal = self.sign(difference), self.is_zero(difference)
        # greater is (1 + sign - equal) / 2
        either = self.subtract(sign, equal) if strictly else self.add(sign, equal)
        result = self.condition(self.scale(self.add(1, either), 1, 2))
        center, factor = self._center(difference)
        self._conditions.add(result, (center, factor if strictly else -factor, strictly))
        return result

    def condition(self, a: Value) -> Term:
        term = self.term(a)
        return Term(term.data, "b", term.size, is_binary=True)

    def subtract(self, a: Value, b: Value) -> Value:
        result = super().subtract(a, b)
        found = self._conditions.get(b) if is_everywhere(a, 1) else None
        if found is not None:
            # what is not a condition
            self._conditions.add(result, (found[0], found[1], not found[2]))
        return result

    def multiply(self, a: Value, b: Value) -> Value:
        """A product with a condition selects, too."""
        for value, other in ((a, b), (b, a)):
            found = self._conditions.get(value) if self.normalizes else None
            if found is not None:
                return self.of_kind(self._selected(found, other, 0), joint_kind(a, b))
        return super().multiply(a, b)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        if (result := self.integers(np.where, self.where, condition, a, b)) is not None:
            return result
        if not isinstance(condition, Term | Sizes):
            return self.choose(np.asarray(condition), a, b)
        found = self._conditions.get(condition) if self.normalizes else None
        if found is not None:
            return self.of_kind(self._selected(found, a, b), joint_kind(a, b))
        return self.add(self.product(condition, a), self.product(self.subtract(1, condition), b))

    def _selected(self, condition: tuple[Term, int, bool], a: Value, b: Value) -> Value:
        """a where a condition holds, and b elsewhere."""
        center, factor, holds = condition
        above, below = (a, b) if holds else (b, a)
        # what is taken above zero, computed for there; and the other one, for there and for elsewhere
        taken = self._on_side(center, factor, above)
        rest = self._on_side(center, -factor, below)
        if rest is not below and not self._vanishes_at(center, self.subtract(below, rest)):
            rest = below
        difference = self.subtract(taken, self._on_side(center, factor, rest))
        sign = self.multiply(factor, self.sign(center))
        if not self._vanishes_at(center, difference):
            sign = self.subtract(sign, self.is_zero(center))
        chosen = self.product(difference, self.scale(self.add(1, sign), 1, 2))
        # as a term: an infinity would absorb the rest
        return self.add(self.term(rest), chosen)

    # ---- values where the sign of another one is known

    def split(self, function: Callable[[Value], Value], a: Value) -> Value | None:
        """A function of a value that depends on one sign: that of the value for each sign.

        None if it depends on none, or on several.
        """
        center, above, below = self._sides(a)
        if center is None:
            return None
        first, second = function(below), function(above)
        share = self.scale(self.add(1, self.sign(center)), 1, 2)
        return self.add(self.term(first), self.product(self.subtract(second, first), share))

    def _sides(self, a: Value) -> tuple[Term | None, Value, Value]:
        """The one value on the sign of which a value depends, and that value where the sign is 1 or -1.

        Both are the value itself where the sign is 0. None if it depends on several signs.
        """
        signs = self.formulas.operands_of(a, "sign") if self.normalizes else []
        if len(signs) != 1:
            return None, a, a
        center = self.term(signs[0])
        above, below = (self._on_side(center, factor, a) for factor in (1, -1))
        differences = self.subtract(above, below), self.subtract(a, below)
        if not all(self._vanishes_at(center, difference) for difference in differences):
            return None, a, a
        return center, above, below

    def _on_side(self, center: Term, factor: int, value: Value) -> Value:
        """A value, computed with the knowledge that factor * center is above zero."""

        def replace(part: Term, formula: Formula | None) -> Value | None:
            if formula is None or formula.name not in ("sign", "is zero"):
                return None
            relation = self._relation(self.term(formula.operands[0]), center)
            if relation is None:
                return None
            direction, shift = relation[0] * factor, relation[1]
            if shift and (shift > 0) != (direction > 0):
                return None
            return np.full(part.shape, direction if formula.name == "sign" else 0, np.float32)

        return self.formulas.rewritten(value, replace)

    def _vanishes_at(self, center: Term, value: Value) -> bool:
        """Whether a value is zero wherever the center is."""
        line = self.line(center)
        zeros = np.zeros(center.shape, np.float64)
        is_shifted = line.base is not center and line.factor == 1 and is_float(line.offset)

        def replace(part: Term, formula: Formula | None) -> Value | None:
            if part.shape == center.shape and (relation := self._relation(part, center)) is not None:
                return self.add(zeros, self.term(float(relation[1]))) if is_float(relation[1]) else None
            if is_shifted and self.is_same(part, line.base):
                return zeros - float(line.offset)
            if formula is None or formula.name not in ("sign", "is zero"):
                return None
            relation = self._relation(self.term(formula.operands[0]), center)
            if relation is None:
                return None
            shift = relation[1]
            number = (shift > 0) - (shift < 0) if formula.name == "sign" else shift == 0
            return np.full(part.shape, float(number), np.float32)

        return self.is_zero_everywhere(self.formulas.rewritten(value, replace))

    def _relation(self, value: Term, center: Term) -> tuple[int, Fraction] | None:
        """1 or -1 and a number with value = 1 * center + number, or -1 * center + number; or None."""
        first, second = self.line(value), self.line(center)
        if not first.factor or abs(first.factor) != abs(second.factor):
            return None
        if self.is_same(first.base, second.base):
            return self._related(first, second, 1)
        if self.is_opposite(first.base, second.base):
            return self._related(first, second, -1)
        return None

    def _related(self, first: Line, second: Line, bases: int) -> tuple[int, Fraction]:
        direction = bases if first.factor == second.factor else -bases
        return direction, first.offset - direction * second.offset


def is_float(number: Fraction) -> bool:
    """Whether a float64 is exactly this number."""
    return math.isfinite(float(number)) and Fraction(float(number)) == number


def _is_at_most(value: Value, limits: Value) -> bool:
    """Whether both are known before the run, and the first one is nowhere above the other one."""
    if isinstance(value, Term | Sizes) or isinstance(limits, Term | Sizes):
        return False
    return bool((np.asarray(value) <= np.asarray(limits)).all())


def _is_like(value: Value, *operands: Value) -> bool:
    """Whether a value has the shape and the kind of a result of arithmetic on these operands."""
    shape = np.broadcast_shapes(*map(shape_of, operands))
    return shape == shape_of(value) and joint_kind(*operands) == kind_of(value)
