"""Residues of a tensor without axes are reduced, as those of any other."""

from __future__ import annotations

import numpy as np

from turnpike.export.identity.numbers.residues import Residues


def test_products_and_sums_of_single_numbers_are_reduced() -> None:
    residues = Residues()
    a, b = residues.random(()), residues.random(())
    modulus = np.array(residues.primes, np.uint64)
    assert (residues.multiply(a, b) == a * b % modulus).all()
    many = residues.random((9,))
    assert (residues.sum(many, [0]) == many.sum(1) % modulus).all()
    assert (residues.cumulative_sum(many, 0)[:, -1] == many.sum(1) % modulus).all()
