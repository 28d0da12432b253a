"""Arithmetic modulo primes equals that of Python's integers and fractions, and functions are random ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnpike.export.identity.numbers.residues import Residues

NUMBERS = Residues(4)
ARRAYS = np.random.default_rng(3)


def residues_of(value: Fraction) -> list[int]:
    return [value.numerator * pow(value.denominator, -1, prime) % prime for prime in NUMBERS.primes]


def random_residues(*shape: int) -> np.ndarray[Any, Any]:
    return NUMBERS.random(shape)


@settings(max_examples=300)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_converted_exactly(number: float) -> None:
    """Subnormal numbers and both zeros among them."""
    for dtype in (np.float32, np.float64):
        array = np.array([number], dtype)
        assert NUMBERS.from_floats(array)[:, 0].tolist() == residues_of(Fraction(float(number)))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_converted_exactly(number: float) -> None:
    array = np.array([[number]])
    assert NUMBERS.from_floats(array)[:, 0, 0].tolist() == residues_of(Fraction(number))


def test_neighbors_in_float32_differ() -> None:
    """One unit in the last place of one weight is another number."""
    weights = ARRAYS.standard_normal(1000).astype(np.float32)
    following = np.nextafter(weights, np.float32(np.inf))
    assert (NUMBERS.from_floats(weights) != NUMBERS.from_floats(following)).all()


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_converted_exactly(number: int) -> None:
    assert NUMBERS.from_integers(np.array(number))[:, ...].tolist() == residues_of(Fraction(number))
    positive = number + 2**63
    assert NUMBERS.from_integers(np.array(positive, np.uint64)).tolist() == residues_of(Fraction(positive))


def test_sums_and_products_are_exact() -> None:
    a, b = random_residues(5, 7), random_residues(5, 7)
    for number, prime in enumerate(NUMBERS.primes):
        x, y = a[number].astype(object), b[number].astype(object)
        assert (NUMBERS.add(a, b)[number] == (x + y) % prime).all()
        assert (NUMBERS.subtract(a, b)[number] == (x - y) % prime).all()
        assert (NUMBERS.multiply(a, b)[number] == x * y % prime).all()
        assert (NUMBERS.sum(a, (0,))[number] == x.sum(0) % prime).all()
        assert (NUMBERS.cumulative_sum(a, 1)[number] == x.cumsum(1) % prime).all()
    assert (NUMBERS.multiply(a, NUMBERS.inverse(a)) == 1).all()


def test_sums_of_a_vector_are_scalars() -> None:
    total = NUMBERS.sum(random_residues(4), (0,))
    assert total.shape == (4,)
    assert all(value < prime for value, prime in zip(total.tolist(), NUMBERS.primes, strict=True))


@pytest.mark.parametrize("count", [1, 3, 64, 65, 1000, 2048, 2049, 1 << 15])
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (3, 4)])
def test_matrix_products_are_exact(count: int, rows: int, columns: int) -> None:
    """Also of the largest limbs and residues, and with as many summands as a width of limbs allows."""
    for number, prime in enumerate(NUMBERS.primes):
        a, b = random_residues(rows, count)[number], random_residues(count, columns)[number]
        lowest, highest = np.uint64((1 << 30) - 1), np.uint64(prime - 1)
        a[0], a[1], b[:, 0], b[:, 1] = lowest, highest - a[1] % 1000, highest - b[:, 0] % 1000, lowest
        expected = np.dot(a.astype(object), b.astype(object)) % prime
        assert (NUMBERS.product(a, b, number) == expected).all()
        x, y = a.astype(float), b.astype(float)
        # as views of windows are
        x.setflags(write=False)
        y.setflags(write=False)
        assert (NUMBERS.product(x, y, number) == expected).all()


def test_products_of_stacks_and_of_nothing() -> None:
    for a_shape, b_shape in (
        ((2, 3, 5), (2, 5, 4)),
        ((2, 1, 3, 5), (4, 5, 1)),
        ((3, 5), (2, 5, 4)),
        ((2, 3, 5), (5, 2)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
        ((2, 3), (3, 0)),
    ):
        a, b = random_residues(*a_shape)[0], random_residues(*b_shape)[0]
        expected = np.matmul(a.astype(object), b.astype(object)) % NUMBERS.primes[0]
        product = NUMBERS.product(a, b, 0)
        assert product.shape == expected.shape
        assert (product == expected).all()


def test_too_long_sums_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 262144 summands, got 262145"):
        NUMBERS.product(np.zeros((1, 262145), np.uint64), np.zeros((262145, 1), np.uint64), 0)


def test_functions_depend_on_all_of_their_arguments() -> None:
    a, b = random_residues(1000), random_residues(1000)
    value = NUMBERS.function("f", [a, b])
    assert (value == NUMBERS.function("f", [a, b])).all()
    assert (value < np.array(NUMBERS.primes, np.uint64)[:, None]).all()
    for other in (
        NUMBERS.function("g", [a, b]),
        NUMBERS.function("f", [b, a]),
        NUMBERS.function("f", [a]),
        Residues(4).function("f", [a, b]),
    ):
        assert (value != other).all()
    # the residue of one prime alone
    for number in range(4):
        changed = a.copy()
        changed[number] = (changed[number] + np.uint64(1)) % np.uint64(NUMBERS.primes[number])
        assert (value != NUMBERS.function("f", [changed, b])).all()


def test_no_value_of_a_function_is_likelier_than_the_bound_assumes() -> None:
    """At most 2**-30 each."""
    value = NUMBERS.function("f", [random_residues(100_000)])
    for part, prime in zip(value, NUMBERS.primes, strict=True):
        counts = np.histogram(part, bins=10, range=(0, prime))[0]
        assert counts.max() < 1.06 * 100_000 * (prime / 10) / 2**30
        assert counts.min() > 5000
    assert np.abs(np.corrcoef(value.astype(float))[~np.eye(4, dtype=bool)]).max() < 0.02


def test_odd_and_even_functions() -> None:
    a = random_residues(3, 50)
    negated = NUMBERS.subtract(np.zeros_like(a), a)
    odd, even = NUMBERS.odd_function("f", a), NUMBERS.even_function("f", a)
    assert (NUMBERS.add(odd, NUMBERS.odd_function("f", negated)) == 0).all()
    assert (even == NUMBERS.even_function("f", negated)).all()
    assert (odd != NUMBERS.odd_function("f", random_residues(3, 50))).all()
    assert (even != NUMBERS.even_function("f", random_residues(3, 50))).all()
    zero = np.zeros((4, 1), np.uint64)
    assert (NUMBERS.odd_function("f", zero) == 0).all()


def test_a_function_of_a_set_ignores_order_and_repeats() -> None:
    a = random_residues(20, 6)
    value = NUMBERS.set_function("f", a)
    assert value.shape == (4, 20)
    assert (value == NUMBERS.set_function("f", a[..., [3, 1, 0, 2, 5, 4]])).all()
    assert (value == NUMBERS.set_function("f", a[..., [3, 1, 0, 2, 5, 4, 4, 3]])).all()
    for places in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 4]):
        assert (value != NUMBERS.set_function("f", a[..., places])).all()
    assert (NUMBERS.set_function("f", a[:, 0]) == value[:, 0]).all()


def test_rows_depend_on_the_bits_of_the_table() -> None:
    table = ARRAYS.standard_normal((5, 3)).astype(np.float32)
    ids = NUMBERS.from_integers(np.array([[0, 1], [1, 4]]))
    rows = NUMBERS.rows(table, ids)
    assert rows.shape == (4, 2, 2, 3)
    assert (rows[:, 0, 1] == rows[:, 1, 0]).all()
    assert (rows[:, 0, 0] != rows[:, 0, 1]).all()
    changed = table.copy()
    # another id uses this row
    changed[3, 1] = np.nextafter(changed[3, 1], np.float32(9))
    assert (rows != NUMBERS.rows(changed, ids)).all()
