"""Tests of gate statistics: many requests at once give the same bits as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.gate_arrays import random_gates
from turnpike.service.gates.statistics import (
    MAX_FLOAT_SORT,
    carried_product,
    gate_statistics,
    longest_run,
    mean_of_last_axis,
    stack_carry_gates,
    stack_gates,
)

Array = np.ndarray[Any, np.dtype[Any]]

LEVELS = (0.05, 0.5, 0.95)
# widths around those that vector instructions take at a time
WIDTHS = (1, 3, 16, 33, 64, 784)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("times", [(None, None, None), (0, 1, 2), (0, 1, 0)])
def test_statistics_do_not_depend_on_other_requests(
    width: int, rows: int, times: tuple[int | None, ...]
) -> None:
    requests = 9
    arrays = [random_gates(requests * rows, width, seed=n) for n in range(3)]

    def statistics(arrays: list[Array], requests: int) -> list[Array]:
        t = stack_gates(arrays, 0, requests, rows)
        means = mean_of_last_axis(t)
        mean = mean_of_last_axis(means)
        return [means, mean, gate_statistics(t, mean, None, 0.01, LEVELS), carried_product(1 - t, times)]

    together = statistics(arrays, requests)
    for n in range(requests):
        alone = statistics([array[n * rows : (n + 1) * rows] for array in arrays], 1)
        for one, all_ in zip(alone, together, strict=True):
            assert one[0].tobytes() == all_[n].tobytes()


def test_the_widths_use_both_ways_to_compute_quantiles() -> None:
    """Few values are sorted as floats, many as whole numbers."""
    assert min(WIDTHS) < MAX_FLOAT_SORT < max(WIDTHS)


@pytest.mark.parametrize(
    ("shape", "axis", "requests", "rows"),
    [((6, 4), 0, 6, 1), ((6, 2, 3), 0, 6, 1), ((6, 4), 0, 2, 3), ((5, 3, 2), 1, 1, 3), ((6, 2), None, 1, 1)],
)
def test_gates_are_stacked_row_by_row(
    shape: tuple[int, ...], axis: int | None, requests: int, rows: int
) -> None:
    arrays = [random_gates(*shape, seed=n) for n in range(2)]
    stacked = stack_gates(arrays, axis, requests, rows)
    assert stacked.flags.c_contiguous
    assert stacked.shape[:3] == (requests, 2, rows)
    for gate, array in enumerate(arrays):
        by_row = np.moveaxis(array, axis or 0, 0).reshape(requests, rows, -1)
        assert (stacked[:, gate] == by_row).all()


def test_carry_gates_of_different_shapes_are_averaged() -> None:
    wide, narrow = random_gates(4, 6), random_gates(4, 2, seed=1)
    stacked = stack_carry_gates([wide, narrow], 0, (2, 2, 2, 6))
    assert stacked.shape == (2, 2, 2, 1)
    assert stacked[:, 0, :, 0].ravel().tolist() == pytest.approx(wide.mean(1).tolist())
    assert stacked[:, 1, :, 0].ravel().tolist() == pytest.approx(narrow.mean(1).tolist())
    assert (stack_carry_gates([wide], 0, (2, 1, 2, 6)) == stack_gates([wide], 0, 2, 2)).all()


def test_longest_runs_worked_out_by_hand() -> None:
    runs = [[[1, 1, 0, 1, 0], [0, 1, 1, 1, 0]], [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]]
    closed = np.array(runs, bool).transpose(0, 2, 1)
    assert longest_run(closed).tolist() == [[2, 3], [5, 0]]
