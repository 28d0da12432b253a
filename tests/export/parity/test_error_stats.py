"""Error statistics, masks and shapes, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnpike.export.parity.error_stats import (
    BINS,
    EPS,
    ErrorHistogram,
    TensorErrors,
    compare_places,
    compare_tensors,
    largest_movement,
    rms,
)

BLANK = TensorErrors("y", "output", "7 rows", ordinary=True)
FLOAT64 = np.array([[3.0, -4.0]])
NATIVE = FLOAT64.astype(np.float32)


def test_errors_are_relative_to_float64() -> None:
    """Both sides are compared with float64, not with each other."""
    ort, native = np.float32([[3.5, -4.0]]), np.float32([[3.0, -4.25]])
    errors = compare_tensors(BLANK, ort=ort, native=native, float64=FLOAT64)
    assert errors == replace(
        BLANK,
        cells=2,
        rms=pytest.approx(0.5 / 2**0.5),
        rms_torch=pytest.approx(0.25 / 2**0.5),
        max=0.5,
        max_torch=0.25,
        scale=pytest.approx((25 / 2) ** 0.5),
    )


def test_gates_have_scale_one() -> None:
    """An error in a closed gate, which is almost zero, is as bad as in an open one."""
    assert (
        compare_tensors(replace(BLANK, kind="gate"), ort=NATIVE, native=NATIVE, float64=FLOAT64).scale == 1.0
    )


@pytest.mark.parametrize(
    ("ort", "mismatch"),
    [
        (np.float32([3.0, -4.0]), "expected shape [1, 2], got [2]"),
        (np.float64([[3.0, -4.0]]), "expected float32, got float64"),
        (
            np.float32([[np.nan, -4.0]]),
            "expected NaN in the 0 cells where the network has it, got it in 1, of which 1 are",
        ),
        (np.float32([[np.inf, -4.0]]), "expected +Inf in the 0 cells"),
    ],
)
def test_differences_that_are_no_numbers_are_mismatches(ort: np.ndarray, mismatch: str) -> None:
    assert compare_tensors(BLANK, ort=ort, native=NATIVE, float64=FLOAT64).mismatch.startswith(mismatch)


def test_nan_on_one_side_or_another_infinity_is_a_mismatch() -> None:
    native = np.float32([np.nan, np.inf, 1.0])
    float64 = native.astype(np.float64)
    assert compare_tensors(BLANK, ort=native, native=native, float64=float64).mismatch == ""
    assert compare_tensors(BLANK, ort=native, native=native, float64=float64).cells == 1
    assert (
        "NaN"
        in compare_tensors(BLANK, ort=np.float32([0, np.inf, 1]), native=native, float64=float64).mismatch
    )
    assert (
        "+Inf"
        in compare_tensors(
            BLANK, ort=np.float32([np.nan, -np.inf, 1]), native=native, float64=float64
        ).mismatch
    )


def test_a_lossy_tensor_may_lose_nan_only() -> None:
    """A NaN may become a number, which is counted; a number may not become NaN."""
    native = np.float32([np.nan, 1.0])
    float64 = native.astype(np.float64)
    errors = compare_tensors(
        BLANK, ort=np.float32([5.0, 1.0]), native=native, float64=float64, may_drop_nan=True
    )
    assert (errors.mismatch, errors.dropped_nans, errors.cells) == ("", 1, 1)
    assert compare_tensors(
        BLANK, ort=np.float32([5.0, np.nan]), native=native, float64=float64, may_drop_nan=True
    ).mismatch


def test_both_sides_may_lose_nan_if_the_reference_does() -> None:
    """onnx's reference evaluator loses NaN in a maximum too, in other cells than onnxruntime."""
    native, ort = np.float32([np.nan, 1.0, 2.0]), np.float32([5.0, np.nan, 2.0])
    float64 = native.astype(np.float64)
    assert compare_tensors(BLANK, ort=ort, native=native, float64=float64, may_drop_nan=True).mismatch
    assert (
        compare_tensors(
            BLANK, ort=ort, native=native, float64=float64, may_drop_nan=True, reference_may_drop_nan=True
        ).mismatch
        == ""
    )
    ort[2] = np.inf
    assert compare_tensors(
        BLANK, ort=ort, native=native, float64=float64, may_drop_nan=True, reference_may_drop_nan=True
    ).mismatch
    assert compare_tensors(
        BLANK, ort=ort, native=native, float64=float64, reference_may_drop_nan=True
    ).mismatch


def test_integers_must_equal_pytorch_or_float64() -> None:
    """An argmax of two equal values may give either index, but no third one."""
    native, float64 = np.array([1, 2, 3]), np.array([1, 2, 4])
    assert compare_tensors(BLANK, ort=np.array([1, 2, 4]), native=native, float64=float64).mismatch == ""
    assert compare_tensors(BLANK, ort=np.array([1, 5, 3]), native=native, float64=float64).mismatch == (
        "expected the network's own values, 1 of 3 differ"
    )


def test_overflow_in_single_precision_is_no_error() -> None:
    """If PyTorch overflows to infinity, infinity is expected, although float64 is finite."""
    errors = compare_tensors(
        BLANK, ort=np.float32([np.inf]), native=np.float32([np.inf]), float64=np.array([1e39])
    )
    assert (errors.mismatch, errors.cells, errors.max) == ("", 0, 0.0)


def test_sensitivity_is_the_movement_from_float64() -> None:
    """None means that nothing was perturbed, 0 that nothing moved."""
    assert compare_tensors(BLANK, ort=NATIVE, native=NATIVE, float64=FLOAT64).sensitivity is None
    moved = [FLOAT64, FLOAT64]
    assert (
        compare_tensors(BLANK, ort=NATIVE, native=NATIVE, float64=FLOAT64, perturbed=moved).sensitivity == 0
    )
    moved = [FLOAT64 + 2, FLOAT64 - 2]
    assert compare_tensors(
        BLANK, ort=NATIVE, native=NATIVE, float64=FLOAT64, perturbed=moved
    ).sensitivity == pytest.approx(2)
    one_cell = FLOAT64 + 2 * (np.arange(FLOAT64.size) == 0).reshape(FLOAT64.shape)
    assert compare_tensors(
        BLANK, ort=NATIVE, native=NATIVE, float64=FLOAT64, perturbed=[one_cell]
    ).sensitivity == pytest.approx(2 / FLOAT64.size**0.5)


def test_errors_that_movements_explain_do_not_count() -> None:
    """An error counts as far as it exceeds four times the largest movement of its own cell."""
    float64, native = np.zeros(3), np.float32([0, 2, 0])
    moved = [np.float32([0, 1, 0]), np.float32([0, -0.5, 0])]
    errors = compare_tensors(
        BLANK, ort=np.float32([0, 5, 3]), native=native, float64=float64, perturbed=moved
    )
    assert errors.max == 3
    assert errors.rms == pytest.approx(((1 + 9) / 3) ** 0.5)
    assert (errors.max_torch, errors.rms_torch) == (0, 0)
    lost = [np.float32([np.nan, 0, np.inf])]
    errors = compare_tensors(BLANK, ort=np.float32([9, 5, 9]), native=native, float64=float64, perturbed=lost)
    assert errors.max == 5


def test_differences_of_places_that_movements_explain_do_not_count() -> None:
    movement = largest_movement([np.float32([1, 2]), np.float32([3, 2])], np.float32([2, 2]))
    assert movement.tolist() == [1, 0]
    errors = compare_places(
        BLANK, ort=np.float32([7, 4]), other=np.float32([2, 2]), float64=np.ones(2), movement=movement
    )
    assert errors.max == 2
    assert errors.rms == pytest.approx((5 / 2) ** 0.5)


def test_the_precision_is_that_of_the_tensor() -> None:
    """float16 has a larger spacing; float64 is not expected to be more exact than float32."""
    half = NATIVE.astype(np.float16)
    assert compare_tensors(BLANK, ort=half, native=half, float64=FLOAT64).eps == 2**-10
    assert compare_tensors(BLANK, ort=FLOAT64, native=FLOAT64, float64=FLOAT64).eps == EPS


def test_two_places_of_one_tensor_are_compared() -> None:
    errors = compare_places(BLANK, ort=np.float32([1.0]), other=np.float32([1.5]), float64=np.array([7.0]))
    assert (errors.rms, errors.max, errors.rms_torch, errors.scale) == (0.5, 0.5, 0.0, 7.0)
    assert compare_places(BLANK, ort=np.array([1]), other=np.array([2]), float64=np.array([2])).mismatch
    for ort, other in ((np.nan, 1), (1, np.nan)):
        assert compare_places(
            BLANK, ort=np.float32([ort]), other=np.float32([other]), float64=np.array([2.0])
        ).mismatch


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_the_root_mean_square_neither_overflows_nor_underflows(factor: float) -> None:
    assert rms(np.array([3.0, 4.0]) * factor) == pytest.approx(12.5**0.5 * factor)
    assert rms(np.zeros(0)) == 0.0


def test_errors_are_counted_by_their_size() -> None:
    """Exact answers count in the first bin."""
    histogram = ErrorHistogram()
    histogram.add(np.array([0.0, 1e-13, 1e-7, 1.0, 5.0]))
    assert histogram.counts.sum() == 5
    assert histogram.counts[0] == 2
    assert histogram.counts[BINS // 2] == 1
    assert histogram.counts[-1] == 2
