"""Arithmetic, elementary functions, comparisons and casts of terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

import numpy as np

from turnpike.export.identity.algebra.notes import Notes
from turnpike.export.identity.algebra.terms import (
    Array,
    Known,
    SizeLedger,
    Sizes,
    Term,
    UndecidedError,
    Value,
    digest_of,
    joint_kind,
    kind_of,
    shape_of,
)
from turnpike.export.identity.numbers.error_bound import ATOM, ErrorBound, Size

# Distinct numbers of which the inverses are exact; those of more are values of a random function.
MAX_EXACT_INVERSES = 64
# whole exponents up to here are products
MAX_EXPONENT = 64

# they grow with their operands, if none is negative
GROWING = (np.add, np.multiply, np.maximum)

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


class Numbers(Protocol):
    """`Residues`, or `Reals` in tests of operators."""

    @property
    def exact(self) -> bool: ...
    @property
    def primes(self) -> tuple[int, ...]: ...
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


class Algebra:
    """Operators on values. Known integers stay known, sizes stay sizes; all other results are terms.

    With `symbolic_sizes`, a size that is read from a tensor is an atom in all arithmetic; without, it is the
    number of this run.
    """

    def __init__(
        self, numbers: Numbers, *, symbolic_sizes: bool = True, bound: ErrorBound | None = None
    ) -> None:
        """`bound` counts for all runs on these numbers; without one, there is one run."""
        self.numbers = numbers
        self.bound = ErrorBound(len(numbers.primes)) if bound is None else bound
        self.sizes = SizeLedger(numbers.from_integers)
        self._symbolic_sizes = symbolic_sizes
        # results of costly operators, by the operator and the digests of its operands
        self._results: dict[tuple[object, ...], Term] = {}
        # the terms of roots that programs round to a literal, by the bytes of the literal
        self._roots: dict[bytes, Term] = {}
        # the sizes that a program has converted to floats, by the elements of the result
        self._sizes_of_floats: dict[bytes, Sizes] = {}
        # for the literals of a root and its inverse: the bytes of the other one
        self._inverses: dict[bytes, bytes] = {}
        # terms that are nowhere below zero
        self._not_negative: Notes[bool] = Notes()
        # for exp(x), and for 1 + exp(x): x
        self._powers: Notes[Term] = Notes()
        self._powers_plus_one: Notes[Term] = Notes()
        # for c * x, with a known number c: both; for min(x, c), with a known c: both
        self._multiples: Notes[tuple[Value, Term]] = Notes()
        self._limited: Notes[tuple[Value, Array]] = Notes()
        # for the number of true places of a mask: the mask, with one axis
        self.counts: Notes[Term] = Notes()
        self._name_square_root_of_two()

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
        zeros = np.zeros(array.shape, np.int64)
        infinity = self.numbers.function("infinity", [self.numbers.from_integers(zeros)])
        negated = self.numbers.subtract(np.zeros_like(infinity), infinity)
        data = np.where(large, np.where(array < 0, negated, infinity), finite.data)
        return Term(data, "f", finite.size.plus(ATOM))

    def part(self, value: Value, number: int) -> Array:
        """The elements of a value modulo one of the primes: the smallest form of large weights."""
        if isinstance(value, Term | Sizes):
            return self.term(value).data[number]
        array = np.asarray(value)
        if (
            array.dtype.kind == "f"
            and array.size > 1
            and np.isfinite(array).all()
            and not is_infinite(array).any()
        ):
            return self.numbers.from_floats_modulo(array, number)
        return self.term(array).data[number]

    def _name_square_root_of_two(self) -> None:
        """Make the root of 2 an atom: GELU multiplies by its inverse, or divides by it before opset 20."""
        root = self._root_atom("square root of 2")
        half = self.scale(root, 1, 2)
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
            return Term(data, value.kind, value.size, value.is_binary)
        if isinstance(value, Sizes):
            moved = self.move(value.term, function)
            return Sizes(function(value.numbers), moved, value.ledger, value.is_growing)
        return function(np.asarray(value))

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

    def _pair(self, a: Term, b: Term) -> tuple[Array, Array]:
        """The elements of two terms, of one rank, so that NumPy can broadcast them."""
        rank = max(a.ndim, b.ndim)
        return with_rank(a.data, rank), with_rank(b.data, rank)

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

    # ---- sums and products

    def add(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.add, self.add, a, b)) is not None:
            return result
        for value, other in ((a, b), (b, a)):
            # an infinity absorbs what is added to it: a mask of attention is written so
            if not isinstance(other, Term | Sizes) and (large := is_infinite(other)).any():
                finite = np.where(large, np.zeros((), np.asarray(other).dtype), other)
                return self.where(large, other, self.add(value, finite))
        x, y = self.term(a), self.term(b)
        result = Term(self.numbers.add(*self._pair(x, y)), joint_kind(a, b), x.size.plus(y.size))
        for value, other in ((a, b), (b, a)):
            exponent = self._powers.get(value)
            if exponent is not None and _is_everywhere(other, 1) and result.shape == exponent.shape:
                self._powers_plus_one.add(result, exponent)
        return result

    def subtract(self, a: Value, b: Value) -> Value:
        # NumPy does not subtract booleans
        if (result := self.integers(lambda x, y: x - y.astype(np.int64), self.subtract, a, b)) is not None:
            return result
        x, y = self.term(a), self.term(b)
        return Term(self.numbers.subtract(*self._pair(x, y)), joint_kind(a, b), x.size.plus(y.size))

    def multiply(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.multiply, self.multiply, a, b)) is not None:
            return result
        x, y = self.term(a), self.term(b)
        result = Term(self.numbers.multiply(*self._pair(x, y)), joint_kind(a, b), x.size.times(y.size))
        for value, factor in ((x, b), (y, a)):
            if isinstance(factor, Term | Sizes) or np.size(factor) != 1:
                continue
            if result.shape == value.shape:
                self._multiples.add(result, (factor, value))
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
                return exact
        exponent = self._powers_plus_one.get(a)
        if exponent is not None:
            # 1 / (1 + exp(-x)) is the sigmoid of x
            return self.sigmoid(self.negate(exponent))
        return self.odd_function("1/x", a)

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

    def power(self, a: Value, exponent: Value) -> Value:
        """a to the power of an exponent; a whole one makes products, and 1/2 a square root."""
        if not isinstance(exponent, Term | Sizes) and np.size(exponent) == 1:
            number = float(np.reshape(exponent, ()))
            if number == int(number) and abs(number) <= MAX_EXPONENT:
                return self._whole_power(a, int(number))
            if abs(number) == 0.5:
                root = self.sqrt(a)
                return root if number > 0 else self.reciprocal(root)
        return self.function("pow", a, exponent)

    def _whole_power(self, a: Value, exponent: int) -> Value:
        if exponent == 0:
            return np.ones(shape_of(a), np.float32 if kind_of(a) == "f" else np.int64)
        result = a
        for _ in range(abs(exponent) - 1):
            result = self.multiply(result, a)
        return result if exponent > 0 else self.reciprocal(result)

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

        return self.once(("function", name, kind), terms, compute)

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

        return self.once(("odd", name), [term], compute)

    def even_function(self, name: str, a: Value) -> Term:
        """A function with f(-x) = f(x)."""
        term = self.term(a)

        def compute() -> Term:
            self.bound.count_function(name, 2 * term.data[0].size, term.size)
            return Term(self.numbers.even_function(name, term.data), "f", ATOM)

        return self.once(("even", name), [term], compute)

    def exp(self, a: Value) -> Value:
        result = self.function("exp", a)
        self._powers.add(result, self.term(a))
        self._not_negative.add(result, True)
        return result

    def log(self, a: Value) -> Value:
        return self.function("log", a)

    def sqrt(self, a: Value) -> Value:
        return self.function("sqrt", a)

    def absolute(self, a: Value) -> Value:
        if (result := self.integers(np.abs, self.absolute, a)) is not None:
            return result
        if self._not_negative.get(a):
            return a
        result = self._of_kind(self.even_function("abs", a), kind_of(a))
        self._not_negative.add(result, True)
        return result

    def sign(self, a: Value) -> Value:
        return self.odd_function("sign", a)

    def truncate(self, a: Value) -> Value:
        """The whole part: sign(a) * floor(|a|)."""
        return self.multiply(self.sign(a), self.function("floor", self.absolute(a)))

    def sigmoid(self, a: Value) -> Value:
        return self.add(self.odd_function("sigmoid - 1/2", a), np.float32(0.5))

    def tanh(self, a: Value) -> Value:
        """tanh(a) = 2 sigmoid(2a) - 1."""
        return self.multiply(2, self.odd_function("sigmoid - 1/2", self.multiply(2, a)))

    def maximum(self, a: Value, b: Value) -> Value:
        """max(a, b) = (a + b + |a - b|) / 2."""
        if (result := self.integers(np.maximum, self.maximum, a, b)) is not None:
            return result
        for value, other in ((a, b), (b, a)):
            if self._not_negative.get(value) and _is_everywhere(other, 0) and _is_like(value, a, b):
                return value
        for value, other in ((a, b), (b, a)):
            limited = self._limited.get(value)
            if limited is not None and _is_at_most(other, limited[1]):
                # a clip is a minimum of a maximum, in whichever order it is written
                return self.minimum(self.maximum(limited[0], other), limited[1])
            multiple = self._multiples.get(value)
            if multiple is not None and isinstance(other, Term) and multiple[1].data is other.data:
                # max(x, c * x), as a leaky relu is written: the larger slope is that of positive numbers
                positive = self.maximum(other, 0)
                negative = self.subtract(other, positive)
                if np.reshape(multiple[0], ()) <= 1:  # type: ignore[arg-type]
                    return self.add(positive, self.multiply(multiple[0], negative))
                return self.add(self.multiply(multiple[0], positive), negative)
        distance = self.absolute(self.subtract(a, b))
        larger = self._of_kind(self.scale(self.add(self.add(a, b), distance), 1, 2), joint_kind(a, b))
        if any(self._not_negative.get(value) or _is_everywhere(value, 0) for value in (a, b)):
            self._not_negative.add(larger, True)
        return larger

    def minimum(self, a: Value, b: Value) -> Value:
        """min(a, b) = (a + b - |a - b|) / 2."""
        if (result := self.integers(np.minimum, self.minimum, a, b)) is not None:
            return result
        distance = self.absolute(self.subtract(a, b))
        smaller = self._of_kind(self.scale(self.subtract(self.add(a, b), distance), 1, 2), joint_kind(a, b))
        for value, other in ((a, b), (b, a)):
            if not isinstance(other, Term | Sizes):
                self._limited.add(smaller, (value, np.asarray(other)))
        return smaller

    def _of_kind(self, value: Value, kind: str) -> Term:
        """A value that a formula with fractions computes, in the kind of the result."""
        term = self.term(value)
        return Term(term.data, kind, term.size, term.is_binary)

    def clip(self, a: Value, low: Value | None = None, high: Value | None = None) -> Value:
        """A limit that is infinite everywhere is none."""
        for limit, function in ((low, self.maximum), (high, self.minimum)):
            if limit is not None and (isinstance(limit, Term | Sizes) or not is_infinite(limit).all()):
                a = function(a, limit)
        return a

    # ---- conditions are 0 or 1

    def compare(self, a: Value, b: Value, how: str) -> Value:
        """Whether a is "gt", "ge", "lt", "le", "eq" or "ne" than b."""
        function = COMPARISONS[how]
        if (result := self.integers(function, lambda x, y: self.compare(x, y, how), a, b)) is not None:
            return result
        if not isinstance(a, Term | Sizes) and not isinstance(b, Term | Sizes):
            return np.asarray(function(a, b))
        difference = self.subtract(b, a) if how[0] == "l" else self.subtract(a, b)
        equal = self.even_function("is zero", difference)
        if how in ("eq", "ne"):
            return self._condition(equal if how == "eq" else self.subtract(1, equal))
        # greater is (1 + sign - equal) / 2
        sign = self.sign(difference)
        either = self.add(sign, equal) if how[1] == "e" else self.subtract(sign, equal)
        return self._condition(self.scale(self.add(1, either), 1, 2))

    def both(self, a: Value, b: Value) -> Value:
        """Whether two conditions hold: numbers other than 0 and 1 need a cast to booleans before."""
        if (result := self.integers(np.logical_and, self.both, a, b)) is not None:
            return result
        return self._condition(self.multiply(a, b))

    def either(self, a: Value, b: Value) -> Value:
        if (result := self.integers(np.logical_or, self.either, a, b)) is not None:
            return result
        return self._condition(self.subtract(self.add(self.term(a), b), self.multiply(a, b)))

    def negation(self, a: Value) -> Value:
        if (result := self.integers(np.logical_not, self.negation, a)) is not None:
            return result
        return self._condition(self.subtract(1, a))

    def _condition(self, a: Value) -> Term:
        term = self.term(a)
        return Term(term.data, "b", term.size, is_binary=True)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        if (result := self.integers(np.where, self.where, condition, a, b)) is not None:
            return result
        if isinstance(condition, Term | Sizes):
            return self.add(self.multiply(condition, a), self.multiply(self.subtract(1, condition), b))
        if not isinstance(a, Term | Sizes) and not isinstance(b, Term | Sizes):
            return np.where(condition, a, b)
        x, y = self.term(a), self.term(b)
        rank = max(x.ndim, y.ndim, np.ndim(condition))
        data = np.where(condition, with_rank(x.data, rank), with_rank(y.data, rank))
        return Term(data, joint_kind(a, b), x.size.plus(y.size))

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
                a = self._of_kind(self.truncate(a), "i")
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


def is_growing_size(value: Value) -> bool:
    return value.is_growing if isinstance(value, Sizes) else bool((np.asarray(value) >= 0).all())


def _is_everywhere(value: Value, number: int) -> bool:
    """Whether a value is known before the run, and is this number in all places."""
    return not isinstance(value, Term | Sizes) and bool((np.asarray(value) == number).all())


def _is_at_most(value: Value, limits: Array) -> bool:
    """Whether a value is known before the run, and nowhere above the limits."""
    return not isinstance(value, Term | Sizes) and bool((np.asarray(value) <= limits).all())


def _is_like(value: Value, *operands: Value) -> bool:
    """Whether a value has the shape and the kind of a result of arithmetic on these operands."""
    shape = np.broadcast_shapes(*map(shape_of, operands))
    return shape == shape_of(value) and joint_kind(*operands) == kind_of(value)


def _digest(value: Value) -> tuple[object, ...]:
    """A digest of the elements or bits of a value, and its shape and kind."""
    if isinstance(value, Sizes):
        value = value.term
    if isinstance(value, Term):
        return value.digest, value.data.dtype.str, value.data.shape, value.kind
    array = np.asarray(value)
    return digest_of(array), array.dtype.str, array.shape, kind_of(array)


def is_infinite(value: Value) -> Array:
    """Where a known value is infinite. The largest float32 counts: masks are written with either."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return np.zeros(array.shape, bool)
    return np.abs(array) >= np.finfo(np.float32).max


def with_rank(data: Array, rank: int) -> Array:
    """Elements with axes of size 1 before those of the tensor, so that it has this rank."""
    return data.reshape(data.shape[0], *(1,) * (rank - data.ndim + 1), *data.shape[1:])


def size_of(array: Array) -> Size:
    """Bounds of known floats, over a common power of two."""
    if not array.size or not (numbers := array[array != 0]).size:
        return Size()
    exponents = np.frexp(numbers.astype(np.float64))[1]
    mantissa = {2: 11, 4: 24}.get(array.dtype.itemsize, 53)
    twos = max(0, mantissa - int(exponents.min()))
    return Size(norm=float(exponents.max()) + twos, twos=twos)
