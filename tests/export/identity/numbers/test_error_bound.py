"""The bound of the error: sizes of polynomials, and probabilities."""

from __future__ import annotations

import math

import pytest

from turnpike.export.identity.numbers.error_bound import ATOM, ErrorBound, Size
from turnpike.export.identity.numbers.primes import PRIMES_IN_RANGE


def test_degrees_of_sums_and_products() -> None:
    square = ATOM.times(ATOM)
    assert square.degree == 2
    assert square.plus(ATOM).degree == 2
    assert square.summed(100).degree == 2
    assert square.plus(Size()).times(square).degree == 4


def test_norms_of_sums_over_a_common_denominator() -> None:
    """(x / 4) + (y / 6) = (3x + 2y) / 12."""
    quarter, sixth = Size(1, 0.0, twos=2), Size(1, 0.0, twos=1, odd=3)
    total = quarter.plus(sixth)
    assert (total.twos, total.odd) == (2, 3)
    assert total.norm == pytest.approx(math.log2(3 + 2))
    product = quarter.times(sixth)
    assert (product.twos, product.odd, product.norm) == (3, 3, 0)
    assert Size(norm=3.0).summed(8).norm == 6


def test_the_chance_that_polynomials_agree() -> None:
    """At a root, or because the prime divides all coefficients."""
    assert Size().agreement() == pytest.approx(1 / 30 / PRIMES_IN_RANGE)
    assert Size(degree=10).agreement() - Size().agreement() == pytest.approx(10 / 2**30)
    assert Size(norm=300.0).agreement() == pytest.approx(301 / 30 / PRIMES_IN_RANGE)
    assert Size(degree=2**40).agreement() == 1


def test_all_pairs_of_arguments_of_a_function_count() -> None:
    bound = ErrorBound(3)
    bound.count_function("f", 1000, ATOM)
    once = bound.probability()
    assert once == pytest.approx(1000 * 999 / 2 * ATOM.agreement() ** 3, rel=1e-6)
    bound.count_function("g", 1000, ATOM)
    assert bound.probability() == pytest.approx(2 * once)
    bound.count_function("g", 1000, Size(degree=20))
    assert bound.probability() > 4000 * once
    compared = ErrorBound(3)
    compared.count_comparison(500, ATOM)
    assert compared.probability() == pytest.approx(500 * ATOM.agreement() ** 3)


def test_a_probability_is_at_most_one() -> None:
    bound = ErrorBound(1)
    bound.count_function("f", 10**9, Size(degree=10**6))
    assert bound.probability() == 1
