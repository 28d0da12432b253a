"""Figures of errors, masks and shapes, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from export.parity.error_stats import (
    BINS,
    EPS,
    ErrorHistogram,
    TensorErrors,
    compare_places,
    compare_tensors,
    rms,
)

BLANK = TensorErrors("y", "output", "7 rows", ordinary=True)
TRUTH = np.array([[3.0, -4.0]])
OWN = TRUTH.astype(np.float32)


def test_errors_are_against_the_truth() -> None:
    """Both sides are measured against it, not against each other."""
    ours, own = np.float32([[3.5, -4.0]]), np.float32([[3.0, -4.25]])
    found = compare_tensors(BLANK, ours=ours, own=own, truth=TRUTH)
    assert found == replace(
        BLANK,
        cells=2,
        rms=pytest.approx(0.5 / 2**0.5),
        rms_torch=pytest.approx(0.25 / 2**0.5),
        max=0.5,
        max_torch=0.25,
        scale=pytest.approx((25 / 2) ** 0.5),
    )


def test_gates_are_of_scale_one() -> None:
    """A closed gate is next to zero, and an error in it is as bad as in an open one."""
    assert compare_tensors(replace(BLANK, kind="gate"), ours=OWN, own=OWN, truth=TRUTH).scale == 1.0


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        (np.float32([3.0, -4.0]), "expected shape [1, 2], got [2]"),
        (np.float64([[3.0, -4.0]]), "expected float32, got float64"),
        (
            np.float32([[np.nan, -4.0]]),
            "expected NaN in the 0 cells where the network has it, got it in 1, 1 of",
        ),
        (np.float32([[np.inf, -4.0]]), "expected +Inf in the 0 cells"),
    ],
)
def test_what_no_number_shows_is_a_fault(ours: np.ndarray, says: str) -> None:
    """Shape, type and places of what is no number, each in words."""
    assert compare_tensors(BLANK, ours=ours, own=OWN, truth=TRUTH).fault.startswith(says)


def test_a_nan_on_one_side_is_a_fault_and_infinities_have_signs() -> None:
    """Neither side may have one where the other has none, nor the other infinity."""
    own = np.float32([np.nan, np.inf, 1.0])
    truth = own.astype(np.float64)
    assert compare_tensors(BLANK, ours=own, own=own, truth=truth).fault == ""
    assert compare_tensors(BLANK, ours=own, own=own, truth=truth).cells == 1
    assert "NaN" in compare_tensors(BLANK, ours=np.float32([0, np.inf, 1]), own=own, truth=truth).fault
    assert "+Inf" in compare_tensors(BLANK, ours=np.float32([np.nan, -np.inf, 1]), own=own, truth=truth).fault


def test_a_lossy_value_may_forget_a_nan_and_nothing_else() -> None:
    """What was NaN may become a number, which is counted; what was a number may not become NaN."""
    own = np.float32([np.nan, 1.0])
    truth = own.astype(np.float64)
    found = compare_tensors(BLANK, ours=np.float32([5.0, 1.0]), own=own, truth=truth, lossy=True)
    assert (found.fault, found.forgotten, found.cells) == ("", 1, 1)
    assert compare_tensors(BLANK, ours=np.float32([5.0, np.nan]), own=own, truth=truth, lossy=True).fault


def test_either_side_may_forget_where_neither_is_sure() -> None:
    """The reference evaluator loses a NaN in a maximum as onnxruntime does, in places of its own."""
    own, ours = np.float32([np.nan, 1.0, 2.0]), np.float32([5.0, np.nan, 2.0])
    truth = own.astype(np.float64)
    assert compare_tensors(BLANK, ours=ours, own=own, truth=truth, lossy=True).fault
    assert compare_tensors(BLANK, ours=ours, own=own, truth=truth, lossy=True, either=True).fault == ""
    ours[2] = np.inf
    assert compare_tensors(BLANK, ours=ours, own=own, truth=truth, lossy=True, either=True).fault
    assert compare_tensors(BLANK, ours=ours, own=own, truth=truth, either=True).fault


def test_whole_numbers_must_be_equal_to_pytorchs_or_to_the_truths() -> None:
    """An argmax between two that are level may fall either way, and no third way."""
    own, truth = np.array([1, 2, 3]), np.array([1, 2, 4])
    assert compare_tensors(BLANK, ours=np.array([1, 2, 4]), own=own, truth=truth).fault == ""
    assert compare_tensors(BLANK, ours=np.array([1, 5, 3]), own=own, truth=truth).fault == (
        "expected the network's own values, 1 of 3 differ"
    )


def test_overflow_in_single_precision_is_no_error() -> None:
    """Where the truth is finite and PyTorch is not, its infinity is what is expected."""
    found = compare_tensors(
        BLANK, ours=np.float32([np.inf]), own=np.float32([np.inf]), truth=np.array([1e39])
    )
    assert (found.fault, found.cells, found.max) == ("", 0, 0.0)


def test_the_sway_is_how_far_the_truth_moves() -> None:
    """It is None where nothing was shaken, which is another thing than standing still."""
    assert compare_tensors(BLANK, ours=OWN, own=OWN, truth=TRUTH).sway is None
    assert compare_tensors(BLANK, ours=OWN, own=OWN, truth=TRUTH, shaken=TRUTH).sway == 0
    assert compare_tensors(BLANK, ours=OWN, own=OWN, truth=TRUTH, shaken=TRUTH + 2).sway == pytest.approx(2)


def test_the_precision_is_the_tensors_own() -> None:
    """Half precision has wider steps; double precision is not expected to be finer than fp32."""
    half = OWN.astype(np.float16)
    assert compare_tensors(BLANK, ours=half, own=half, truth=TRUTH).eps == 2**-10
    assert compare_tensors(BLANK, ours=TRUTH, own=TRUTH, truth=TRUTH).eps == EPS


def test_what_should_be_one_is_compared_with_itself() -> None:
    """Rows in two places: how far they are apart, and a scale from the truth."""
    found = compare_places(BLANK, ours=np.float32([1.0]), there=np.float32([1.5]), truth=np.array([7.0]))
    assert (found.rms, found.max, found.rms_torch, found.scale) == (0.5, 0.5, 0.0, 7.0)
    assert compare_places(BLANK, ours=np.array([1]), there=np.array([2]), truth=np.array([2])).fault
    assert compare_places(
        BLANK, ours=np.float32([np.nan]), there=np.float32([1]), truth=np.array([2.0])
    ).fault


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_the_root_mean_square_knows_any_size(factor: float) -> None:
    """Squares of great numbers overflow and those of tiny ones vanish: not here."""
    assert rms(np.array([3.0, 4.0]) * factor) == pytest.approx(12.5**0.5 * factor)
    assert rms(np.zeros(0)) == 0.0


def test_errors_are_counted_by_their_size() -> None:
    """Each power of ten has its place; exact answers count as the smallest."""
    histogram = ErrorHistogram()
    histogram.add(np.array([0.0, 1e-13, 1e-7, 1.0, 5.0]))
    assert histogram.counts.sum() == 5
    assert histogram.counts[0] == 2
    assert histogram.counts[BINS // 2] == 1
    assert histogram.counts[-1] == 2
