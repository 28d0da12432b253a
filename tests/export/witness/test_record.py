"""A witness as a sentence, and as a file that can be tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from turnpike.export.network import Array
from turnpike.export.witness.record import Witness

WITNESS = Witness(
    inputs={"x": np.array([[0.5, 2.0]], np.float32)},
    rows=1,
    description="random numbers",
    output="logits",
    is_hidden=False,
    cell=(0, 2),
    float64=1.5,
    native=1.5,
    file=2.5,
    times=1e6,
)


def test_a_sentence_has_both_values_and_a_small_input() -> None:
    assert str(WITNESS) == (
        "For 1 row (random numbers: x = [[0.5, 2.0]]), logits[0, 2] is 1.5 in the network and 2.5 in the "
        "file. The difference is 1e+06 times the network's own rounding error."
    )


def test_a_large_input_is_described() -> None:
    large = replace(WITNESS, inputs={"x": np.zeros((7, 9), np.float32)}, rows=7, native=1.25, times=np.inf)
    assert str(large) == (
        "For 7 rows (random numbers), logits[0, 2] is 1.25 (1.5 in float64) in the network and 2.5 in the "
        "file."
    )


def test_the_saved_arrays_are_named_like_the_inputs(tmp_path: Path) -> None:
    """Also an input with a name that `np.savez` cannot write."""
    inputs: dict[str, Array] = {
        "file": np.arange(6, dtype=np.int64).reshape(2, 3),
        "x": np.array([[np.nan, 1e-45]], np.float32),
    }
    path = tmp_path / "witness.npz"
    replace(WITNESS, inputs=inputs).save(path)
    with np.load(path) as saved:
        assert set(saved) == set(inputs)
        for name, array in inputs.items():
            assert saved[name].dtype == array.dtype
            np.testing.assert_array_equal(saved[name], array)
