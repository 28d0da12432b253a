"""Error statistics of one tensor in one batch: onnxruntime's and PyTorch's errors against float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from turnpike.export.network import Array

TensorKind = Literal["output", "gate", "layer"]

# spacing of float32 numbers at 1
EPS = 2.0**-23
# histograms count errors in BINS equal bins between these powers of ten
DECADES, BINS = (-12.0, -2.0), 41
# slight changes of the input explain an error up to this multiple of the farthest that they move the cell
EXPLAINED_FACTOR = 4.0
# share of integers that may differ because they are choices between two equally good values (ties)
MAX_TIED_SHARE = 0.01


@dataclass(frozen=True)
class TensorErrors:
    """The errors of both sides in one tensor and batch, over the cells that are finite on all sides.

    Attributes:
        tensor: Name of the tensor.
        kind: Output, gate or layer.
        batch: Name of the batch.
        ordinary: Whether the batch is like data.
        rows: Number of rows with independent numbers.
        cells: Number of cells compared.
        rms: Root mean square error of onnxruntime.
        rms_torch: Root mean square error of PyTorch.
        max: Largest error of onnxruntime.
        max_torch: Largest error of PyTorch.
        scale: Root mean square of the float64 values; 1 for gates.
        eps: Spacing at 1 of the tensor's own dtype, but at least that of float32.
        sensitivity: How far PyTorch's values move from float64 when the input changes slightly; None if that
            was not measured. If it was, the errors are those that such movements do not explain.
        dropped_nans: Number of cells where onnxruntime gave a number for a NaN.
        mismatch: What no figure can express: shapes, dtypes, NaN positions or integers that differ.
    """

    tensor: str
    kind: TensorKind
    batch: str
    ordinary: bool
    rows: int = 1
    cells: int = 0
    rms: float = 0.0
    rms_torch: float = 0.0
    max: float = 0.0
    max_torch: float = 0.0
    scale: float = 0.0
    eps: float = EPS
    sensitivity: float | None = None
    dropped_nans: int = 0
    mismatch: str = ""


@dataclass
class ErrorHistogram:
    """Counts errors by magnitude in `BINS` bins."""

    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, errors: Array) -> None:
        """Count absolute errors. Errors beyond either end count in the first or last bin."""
        low, high = DECADES
        with np.errstate(divide="ignore"):
            bins = (np.log10(errors) - low) * (BINS / (high - low))
        bins = np.clip(bins, 0, BINS - 1).astype(np.int64)
        self.counts += np.bincount(bins.ravel(), minlength=BINS)


def compare_tensors(
    blank: TensorErrors,
    *,
    ort: Array,
    native: Array,
    float64: Array,
    perturbed: Sequence[Array] = (),
    may_drop_nan: bool = False,
    reference_may_drop_nan: bool = False,
) -> TensorErrors:
    """Compare onnxruntime's and PyTorch's values of one tensor with the float64 values.

    Integers must equal PyTorch's in ordinary batches, unless they equal the float64 result or are ties.

    Args:
        blank: Names the tensor and batch; its figures are filled in.
        ort: What onnxruntime computed.
        native: What PyTorch computed in its own precision.
        float64: What PyTorch computed in float64.
        perturbed: What PyTorch computes for slightly changed inputs. Integers that change are ties. The
            errors of a float count as far as they exceed `EXPLAINED_FACTOR` times the largest movement of
            the same cell.
        may_drop_nan: Whether onnxruntime may give a number for a NaN here; such cells are counted.
        reference_may_drop_nan: Whether `native` may do so too, because it does not come from PyTorch.

    Returns:
        The errors, or a mismatch.
    """
    if mismatch := _shape_mismatch(ort, native):
        return replace(blank, mismatch=mismatch)
    if native.dtype.kind != "f":
        ties = np.zeros(native.shape, bool)
        for moved in perturbed:
            ties |= moved != float64
        wrong = int(np.count_nonzero((ort != native) & (ort != float64) & ~ties)) if blank.ordinary else 0
        mismatch = f"expected the network's own values, {wrong} of {native.size} differ" if wrong else ""
        return replace(blank, cells=native.size, mismatch=mismatch)
    # a NaN or an infinity that float64 has is right, too: float32 may overflow before it
    expected = np.where(_kinds(ort) == _kinds(float64), ort, native)
    if mismatch := _mask_mismatch(ort, expected, may_drop_nan, reference_may_drop_nan):
        return replace(blank, mismatch=mismatch)
    ort_errors, torch_errors, finite = absolute_errors(ort, native, float64)
    sensitivity = None
    if perturbed:
        movements = [_movement(moved[finite], float64[finite]) for moved in perturbed]
        sensitivity = rms(np.concatenate(movements))
        explained = EXPLAINED_FACTOR * np.max(movements, axis=0)
        ort_errors, torch_errors = (
            np.maximum(errors - explained, 0) for errors in (ort_errors, torch_errors)
        )
    return replace(
        blank,
        cells=torch_errors.size,
        rms=rms(ort_errors),
        rms_torch=rms(torch_errors),
        max=float(ort_errors.max(initial=0.0)),
        max_torch=float(torch_errors.max(initial=0.0)),
        scale=_scale(blank, float64[finite]),
        eps=_eps(native),
        sensitivity=sensitivity,
        dropped_nans=int(np.count_nonzero(np.isnan(native) & ~np.isnan(ort))),
    )


def compare_places(
    blank: TensorErrors, *, ort: Array, other: Array, float64: Array, movement: Array | None = None
) -> TensorErrors:
    """Compare two arrays that should hold the same numbers, such as one row in two batches.

    Integers that differ may be ties, as long as they are few.

    Args:
        blank: Names the tensor and batch; its figures are filled in.
        ort: What onnxruntime computed.
        other: What it should equal.
        float64: The float64 values, for the scale.
        movement: How far each cell moves when the input changes slightly, which explains some differences.

    Returns:
        The differences, or a mismatch.
    """
    if mismatch := _shape_mismatch(ort, other):
        return replace(blank, mismatch=mismatch)
    if ort.dtype.kind != "f":
        wrong = int(np.count_nonzero(ort != other))
        too_many = wrong > MAX_TIED_SHARE * ort.size
        mismatch = f"expected the same values, {wrong} of {ort.size} differ" if too_many else ""
        return replace(blank, cells=ort.size, mismatch=mismatch)
    if mismatch := _mask_mismatch(ort, other):
        return replace(blank, mismatch=mismatch)
    differences, _, finite = absolute_errors(ort, other, other)
    if movement is not None:
        differences = np.maximum(differences - EXPLAINED_FACTOR * movement[finite], 0)
    return replace(
        blank,
        cells=differences.size,
        rms=rms(differences),
        max=float(differences.max(initial=0.0)),
        scale=_scale(blank, float64[np.isfinite(float64)]),
        eps=_eps(other),
    )


def absolute_errors(ort: Array, native: Array, float64: Array) -> tuple[Array, Array, Array]:
    """Errors of onnxruntime and of PyTorch, and the mask of cells that are finite on all sides."""
    finite = np.isfinite(ort) & np.isfinite(native) & np.isfinite(float64)
    exact = float64[finite].astype(np.float64, copy=False)
    return np.abs(ort[finite] - exact), np.abs(native[finite] - exact), finite


def rms(values: Array) -> float:
    """Root mean square; 0 for an empty array."""
    largest = float(np.abs(values).max(initial=0.0))
    # divide by the largest, so that squares neither overflow nor underflow
    return (
        largest * float(np.sqrt(np.mean(np.square(values / largest, dtype=np.float64))))
        if largest > 0
        else 0.0
    )


def _shape_mismatch(ort: Array, expected: Array) -> str:
    if ort.shape != expected.shape:
        return f"expected shape {list(expected.shape)}, got {list(ort.shape)}"
    return "" if ort.dtype == expected.dtype else f"expected {expected.dtype}, got {ort.dtype}"


def _kinds(array: Array) -> Array:
    """What each cell is: a number (0), NaN (1), or an infinity (2 or -2)."""
    return np.isnan(array) + 2 * np.isposinf(array).astype(np.int8) - 2 * np.isneginf(array)


def _mask_mismatch(
    ort: Array, expected: Array, may_drop_nan: bool = False, reference_may_drop_nan: bool = False
) -> str:
    """Describe NaN or infinities that are in different cells; empty if there are none."""
    if may_drop_nan:
        compared = ~np.isnan(expected) & ~(np.isnan(ort) & reference_may_drop_nan)
        ort, expected = ort[compared], expected[compared]
    for name, is_special in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        ort_mask, expected_mask = is_special(ort), is_special(expected)
        if not np.array_equal(ort_mask, expected_mask):
            return (
                f"expected {name} in the {np.count_nonzero(expected_mask)} cells where the network has it, "
                f"got it in {np.count_nonzero(ort_mask)}, of which "
                f"{np.count_nonzero(ort_mask & ~expected_mask)} are other cells"
            )
    return ""


def largest_movement(perturbed: Sequence[Array], native: Array) -> Array:
    """How far each cell moves at most from its value when the input changes slightly."""
    return np.asarray(np.max([_movement(moved, native) for moved in perturbed], axis=0))


def _movement(moved: Array, still: Array) -> Array:
    """The movement of each cell; the largest float if the cell becomes NaN or infinite."""
    with np.errstate(invalid="ignore"):
        movement = np.abs(moved.astype(np.float64) - still)
    largest = float(np.finfo(np.float32).max)
    return np.nan_to_num(movement, copy=False, nan=largest, posinf=largest)


def _scale(blank: TensorErrors, float64: Array) -> float:
    return 1.0 if blank.kind == "gate" else rms(float64)


def _eps(array: Array) -> float:
    return max(EPS, float(np.finfo(array.dtype).eps))
