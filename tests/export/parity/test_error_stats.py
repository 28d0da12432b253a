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
    compare_tensors,
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


@pytest.mark.parametrize(
    ("size", "differing", "passes"), [(3, 1, True), (3, 2, False), (400, 4, True), (400, 5, False)]
)
def test_integers_must_equal_pytorch_or_float64(size: int, differing: int, passes: bool) -> None:
    """An argmax of two equal values may give either index, and a few others are ties."""
    native, float64 = np.zeros(size, int), np.zeros(size, int)
    float64[-1] = 4
    ort = float64.copy()
    ort[:differing] = 5
    mismatch = compare_tensors(BLANK, ort=ort, native=native, float64=float64).mismatch
    assert mismatch == ("" if passes else f"expected the network's own values, {differing} of {size} differ")
    extreme = replace(BLANK, ordinary=False)
    assert compare_tensors(extreme, ort=ort, native=native, float64=float64).mismatch == ""


def test_overflow_in_single_precision_is_no_error() -> None:
    """If PyTorch overflows to infinity, infinity is expected, although float64 is finite."""
    errors = compare_tensors(
        BLANK, ort=np.float32([np.inf]), native=np.float32([np.inf]), float64=np.array([1e39])
    )
    assert (errors.mismatch, errors.cells, errors.max) == ("", 0, 0.0)


def test_the_precision_is_that_of_the_tensor() -> None:
    """float16 has a larger spacing; float64 is not expected to be more exact than float32."""
    half = NATIVE.astype(np.float16)
    assert compare_tensors(BLANK, ort=half, native=half, float64=FLOAT64).eps == 2**-10
    assert compare_tensors(BLANK, ort=FLOAT64, native=FLOAT64, float64=FLOAT64).eps == EPS


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
