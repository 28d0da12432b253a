"""The residues of a weight are computed once."""

from __future__ import annotations

import numpy as np
import pytest

from turnpike.export.identity.numbers import kept_weights
from turnpike.export.identity.numbers.residues import Residues


def weights(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_kept_residues_are_those_of_the_array_and_of_its_transpose() -> None:
    numbers, array = Residues(), weights(16, 40)
    expected = numbers.from_floats(array)
    for number in range(len(numbers.primes)):
        for _ in range(2):
            np.testing.assert_array_equal(numbers.from_floats_modulo(array, number), expected[number])
            np.testing.assert_array_equal(numbers.from_floats_modulo(array.T, number), expected[number].T)
    kept, turned = (numbers.from_floats_modulo(form, 0) for form in (array, array.T))
    assert np.shares_memory(kept, turned)


def test_parts_of_an_array_are_other_weights() -> None:
    numbers, array = Residues(), weights(64, 40)
    first, second = (numbers.from_floats_modulo(part, 0) for part in (array[:32], array[32:]))
    whole = numbers.from_floats_modulo(array, 0)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_only_so_many_residues_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "MAX_BYTES", 4 * 16 * 40)
    numbers, array = Residues(), weights(16, 40)
    assert numbers.from_floats_modulo(array, 0) is numbers.from_floats_modulo(array, 0)
    assert numbers.from_floats_modulo(array, 1) is not numbers.from_floats_modulo(array, 1)


@pytest.mark.parametrize("number", [np.inf, -np.finfo(np.float32).max, np.nan])
def test_a_weight_that_is_not_finite_is_known(number: float) -> None:
    array = weights(300)
    kept = kept_weights.KeptWeights()
    assert kept.of(array).is_finite
    other = array.copy()
    other[7] = number
    assert not kept.of(other).is_finite
