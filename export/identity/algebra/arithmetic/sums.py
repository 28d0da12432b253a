"""Sums, products and inverses of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Unpack

import numpy as np

from turnpike.export.identity.algebra.arithmetic.functions import Functions
from turnpike.export.identity.algebra.arithmetic.terms import Array, Sizes, Term, Value, joint_kind
from turnpike.export.identity.algebra.arithmetic.values import Numbers, Options, is_infinite, with_rank
from turnpike.export.identity.numbers.error_bound import ATOM, Size

# Distinct numbers of which the inverses are exact; those of more are values of a random function.
MAX_EXACT_INVERSES = 64
# sums and multiples that are looked through for the one value that they are computed from
MAX_LINEAR_STEPS = 6


@dataclass(frozen=True)
class Line:
    """factor * base + offset; with a factor of 0, the value is the offset."""

    factor: Fraction
    base: Term
    offset: Fraction


class Sums(Functions):
    """Operators that make polynomials, and inverses."""

    def __init__(self, numbers: Numbers, **options: Unpack[Options]) -> None:
        super().__init__(numbers, **options)
        self._name_square_root_of_two()

    def add(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.add, self.add, a, b)) is not None:
            return result
        for value, other in ((a, b), (b, a)):
            # an infinity absorbs what is added to it: a mask of attention is written so
            if not isinstance(other, Term | Sizes) and (large := is_infinite(other)).any():
                finite = np.where(large, np.zeros((), np.asarray(other).dtype), other)
                return self.choose(large, other, self.add(value, finite))
        x, y = self.term(a), self.term(b)
        result = Term(self.numbers.add(*self.pair(x, y)), joint_kind(a, b), x.size.plus(y.size))
        self.formulas.add(result, "add", self.add, a, b)
        numbers = self.fraction(a), self.fraction(b)
        if numbers[0] is not None and numbers[1] is not None:
            self._fractions.add(result, numbers[0] + numbers[1])
        if self.is_not_negative(a) and self.is_not_negative(b):
            self._not_negative.add(result, True)
        return result

    def choose(self, condition: Array, a: Value, b: Value) -> Value:
        """The elements of a where a known condition holds, and elsewhere those of b."""
        if not isinstance(a, Term | Sizes) and not isinstance(b, Term | Sizes):
            return np.where(condition, a, b)
        x, y = self.term(a), self.term(b)
        rank = max(x.ndim, y.ndim, np.ndim(condition))
        data = np.where(condition, with_rank(x.data, rank), with_rank(y.data, rank))
        return Term(data, joint_kind(a, b), x.size.plus(y.size))

    def subtract(self, a: Value, b: Value) -> Value:
        # NumPy does not subtract booleans
        if (result := self.integers(lambda x, y: x - y.astype(np.int64), self.subtract, a, b)) is not None:
            return result
        x, y = self.term(a), self.term(b)
        result = Term(self.numbers.subtract(*self.pair(x, y)), joint_kind(a, b), x.size.plus(y.size))
        self.formulas.add(result, "subtract", self.subtract, a, b)
        numbers = self.fraction(a), self.fraction(b)
        if numbers[0] is not None and numbers[1] is not None:
            self._fractions.add(result, numbers[0] - numbers[1])
        return result

    def multiply(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.multiply, self.multiply, a, b)) is not None:
            return result
        return self.product(a, b)

    def product(self, a: Value, b: Value) -> Term:
        """The product, without a look for laws."""
        x, y = self.term(a), self.term(b)
        result = Term(self.numbers.multiply(*self.pair(x, y)), joint_kind(a, b), x.size.times(y.size))
        self.formulas.add(result, "multiply", self.multiply, a, b)
        numbers = self.fraction(a), self.fraction(b)
        if numbers[0] is not None and numbers[1] is not None:
            self._fractions.add(result, numbers[0] * numbers[1])
        if self.is_not_negative(a) and self.is_not_negative(b):
            self._not_negative.add(result, True)
        return result

    def negate(self, a: Value) -> Value:
        return self.subtract(np.zeros((), np.int64), a)

    def reciprocal(self, a: Value) -> Value:
        """1/a: exact for few known numbers, and otherwise an odd random function of a."""
        if not isinstance(a, Term | Sizes):
            array = np.asarray(a)
            inverse = self._inverses.get(array.tobytes()) if array.size == 1 else None
            if inverse is not None:
                return self.move(self._roots[inverse], lambda data: data.reshape(array.shape))
            exact = self._exact_inverse(array)
            if exact is not None:
                if (number := self.fraction(a)) is not None:
                    self._fractions.add(exact, 1 / number)
                if (array > 0).all():
                    self._not_negative.add(exact, True)
                return exact
        result = self.odd_function("1/x", a)
        self.formulas.add(result, "reciprocal", self.reciprocal, a)
        if self.is_not_negative(a):
            self._not_negative.add(result, True)
        return result

    def divide(self, a: Value, b: Value) -> Value:
        return self.multiply(a, self.reciprocal(b))

    def scale(self, a: Value, numerator: int, denominator: int = 1) -> Value:
        """A value times a rational number."""
        return self.multiply(a, self.multiply(numerator, self.reciprocal(denominator)))

    def _exact_inverse(self, array: Array) -> Term | None:
        distinct = np.unique(array)
        if distinct.size > MAX_EXACT_INVERSES or not np.isfinite(distinct).all() or not distinct.all():
            return None
        odd, smallest = 1, 0
        for number in distinct.tolist():
            numerator, denominator = float(number).as_integer_ratio()
            twos = (numerator & -numerator).bit_length() - 1
            odd = math.lcm(odd, abs(numerator) >> twos)
            smallest = max(smallest, twos, denominator.bit_length())
        size = Size(norm=math.log2(odd) + 2 * smallest, twos=smallest, odd=odd)
        term = self.term(array)
        return Term(self.numbers.inverse(term.data), "f", size)

    # ---- roots that programs round

    def _name_square_root_of_two(self) -> None:
        """Make the root of 2 an atom: GELU multiplies by its inverse, or divides by it before opset 20."""
        root = self._root_atom("square root of 2")
        half = self.product(root, np.float32(0.5))
        for dtype in (np.float32, np.float64):
            two, inverse = (np.sqrt(np.array(number, dtype)).tobytes() for number in (2, 0.5))
            self._roots |= {two: root, inverse: self.term(half)}
            self._inverses |= {two: inverse, inverse: two}

    def _root_atom(self, name: str) -> Term:
        zero = self.numbers.from_integers(np.zeros((), np.int64))
        return Term(self.numbers.function(name, [zero]), "f", ATOM)

    def inverse_square_root(self, size: int) -> Value:
        """1/sqrt(size), as attention has it.

        torch.onnx multiplies queries and keys by its square root each, rounded. If that is no power of two,
        it becomes an atom r, here and wherever a program has one of its roundings, and 1/sqrt(size) is r * r.
        """
        root = np.sqrt(np.float32(1) / np.sqrt(np.float32(size)))
        if float(root) ** -4 == size:
            return np.float32(1 / math.sqrt(size))
        atom = self._roots.get(root.tobytes()) or self._root_atom(f"fourth root of 1/{size}")
        for rounded in (root, np.float32(size**-0.25)):
            self._roots[rounded.tobytes()] = atom
        return self.multiply(atom, atom)

    def root_of_scale(self, scale: float) -> Value:
        """A scale of attention that is given: queries and keys are multiplied by its rounded root, too."""
        number = np.float32(scale)
        root = np.sqrt(number)
        if not number > 0 or float(root) ** 2 == float(number):
            return number
        atom = self._roots.get(root.tobytes()) or self._root_atom(f"square root of {scale}")
        for rounded in (root, np.float32(math.sqrt(scale))):
            self._roots[rounded.tobytes()] = atom
        return self.multiply(atom, atom)

    # ---- multiples of one value

    def _note_move(self, result: Term, value: Term, function: Callable[[Array], Array]) -> None:
        self.formulas.add(result, "move", lambda moved: self.move(moved, function), value)

    def line(self, term: Term, steps: int = MAX_LINEAR_STEPS) -> Line:
        """A value as a multiple of another one, and a number: 2 * (x - 3) + x is 3 * x - 6."""
        if (known := self.fraction(term)) is not None:
            return Line(Fraction(0), term, known)
        formula = self.formulas.get(term) if steps else None
        if formula is not None and formula.name == "move" and isinstance(formula.operands[0], Term):
            inner = self.line(formula.operands[0], steps - 1)
            if inner.base is formula.operands[0] or not inner.factor:
                return Line(inner.factor, term, inner.offset)
            return Line(inner.factor, self.term(formula.compute(inner.base)), inner.offset)
        if formula is None or formula.name not in ("add", "subtract", "multiply"):
            return Line(Fraction(1), term, Fraction(0))
        a, b = formula.operands
        numbers = self.fraction(a), self.fraction(b)
        lines = [
            self.line(operand, steps - 1)
            if isinstance(operand, Term) and operand.shape == term.shape and number is None
            else None
            for operand, number in zip((a, b), numbers, strict=True)
        ]
        if formula.name == "multiply":
            for number, line in ((numbers[0], lines[1]), (numbers[1], lines[0])):
                if number and line is not None:
                    return Line(line.factor * number, line.base, line.offset * number)
            return Line(Fraction(1), term, Fraction(0))
        sign = 1 if formula.name == "add" else -1
        first, second = lines
        if first is not None and numbers[1] is not None:
            return Line(first.factor, first.base, first.offset + sign * numbers[1])
        if second is not None and numbers[0] is not None:
            return Line(sign * second.factor, second.base, numbers[0] + sign * second.offset)
        if first is not None and second is not None and self.is_same(first.base, second.base):
            factor = first.factor + sign * second.factor
            return Line(factor, first.base, first.offset + sign * second.offset)
        return Line(Fraction(1), term, Fraction(0))
