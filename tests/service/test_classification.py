"""Tests of classification, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from turnpike.service.classification import classification, probabilities, top_classes


def test_logits_become_probabilities() -> None:
    """Softmax in float64, without overflow at large logits."""
    got = probabilities(np.float32([[0, 1, 2], [1000, 0, -1000]]), distribution=False)
    total = 1 + np.e + np.e**2
    np.testing.assert_allclose(
        got, [[1 / total, np.e / total, np.e**2 / total], [1, 0, 0]], rtol=1e-15, atol=1e-300
    )
    assert got.dtype == np.float64


def test_probabilities_are_not_normalized_again() -> None:
    given = np.float32([[0.25, 0.75]])
    np.testing.assert_array_equal(probabilities(given, distribution=True), given)


def test_zero_rows_give_zero_probabilities() -> None:
    assert probabilities(np.empty((0, 3), np.float32), distribution=False).shape == (0, 3)


def test_the_first_of_equal_values_comes_first() -> None:
    assert top_classes(np.float32([[1, 3, 3, 2], [0, 0, 0, 0]]), 3).tolist() == [[1, 2, 3], [0, 1, 2]]
    assert top_classes(np.float32([[0, 1] * 100]), 4).tolist() == [[1, 3, 5, 7]]
    assert top_classes(np.uint8([[0, 255, 1]]), 2).tolist() == [[1, 2]]


@pytest.mark.parametrize(("count", "returned"), [(1, 1), (3, 3), (9, 3), (2**40, 3)])
def test_the_number_of_classes_is_limited_by_the_output(count: int, returned: int) -> None:
    shape, strings = classification(np.float32([[1, 2, 3]] * 2), 2, count, ())
    assert shape == (2, returned)
    assert strings[:returned] == ["3.000000:2", "2.000000:1", "1.000000:0"][:returned]


def test_labels_are_used_if_their_number_fits_the_output() -> None:
    labels = ("a", "b")
    assert classification(np.float32([[1, 2]]), 1, 1, labels)[1] == ["2.000000:1:b"]
    assert classification(np.float32([[1, 2, 3]]), 1, 1, labels)[1] == ["3.000000:2"]


def test_each_row_of_the_batch_has_its_classes() -> None:
    """Further axes are flattened; an output without a batch axis is one row."""
    assert classification(np.arange(8.0).reshape(2, 2, 2), 2, 1, ()) == ((2, 1), ["3.000000:3", "7.000000:3"])
    assert classification(np.arange(4.0), 1, 1, ()) == ((1, 1), ["3.000000:3"])
    assert classification(np.float32(5), 1, 1, ()) == ((1, 1), ["5.000000:0"])
    assert classification(np.empty((0, 4), np.float32), 0, 2, ()) == ((0, 2), [])
