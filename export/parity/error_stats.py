"""Error statistics of one tensor in one batch: onnxruntime's and PyTorch's errors against float64."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from turnpike.export.network import Array

TensorKind = Literal["output", "gate", "layer"]

# spacing of float32 numbers at 1
EPS = 2.0**-23
# histograms count errors in BINS equal bins between these powers of ten
DECADES, BINS = (-12.0, -2.0), 41
# share of integers that may differ because they are choices between two equally good values (ties); at least
# one may, in a batch of few
MAX_TIED_SHARE = 0.01


@dataclass(frozen=True)
class TensorErrors:
    """The errors of both sides in one tensor and batch, over the cells that are finite on all sides.

    Attributes:
        tensor: Name of the tensor.
        kind: Output, gate or layer.
        batch: Name of the batch.
        ordinary: Whether the batch is like data.
        cells: Number of cells compared.
        rms: Root mean square error of onnxruntime.
        rms_torch: Root mean square error of PyTorch.
        max: Largest error of onnxruntime.
        max_torch: Largest error of PyTorch.
        scale: Root mean square of the float64 values; 1 for gates.
        eps: Spacing at 1 of the tensor's own dtype, but at least that of float32.
        dropped_nans: Number of cells where onnxruntime gave a number for a NaN that float64 has as well.
        mismatch: What no figure can express: shapes, dtypes, NaN positions or integers that differ.
    """

    tensor: str
    kind: TensorKind
    batch: str
    ordinary: bool
    cells: int = 0
    rms: float = 0.0
    rms_torch: float = 0.0
    max: float = 0.0
    max_torch: float = 0.0
    scale: float = 0.0
    eps: float = EPS
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
    may_drop_nan: bool = False,
    reference_may_drop_nan: bool = False,
) -> TensorErrors:
    """Compare onnxruntime's and PyTorch's values of one tensor with the float64 values.

    Integers must equal PyTorch's or the float64 result in ordinary batches, except for a few ties.

    Args:
        blank: Names the tensor and batch; its figures are filled in.
        ort: What onnxruntime computed.
        native: What PyTorch computed in its own precision.
        float64: What PyTorch computed in float64.
        may_drop_nan: Whether onnxruntime may give a number for a NaN here; such cells are counted.
        reference_may_drop_nan: Whether `native` may do so too, because it does not come from PyTorch.

    Returns:
        The errors, or a mismatch.
    """
    if mismatch := _shape_mismatch(ort, native):
        return replace(blank, mismatch=mismatch)
    if native.dtype.kind != "f":
        wrong = int(np.count_nonzero((ort != native) & (ort != float64))) if blank.ordinary else 0
        too_many = wrong > max(1, MAX_TIED_SHARE * native.size)
        mismatch = f"expected the network's own values, {wrong} of {native.size} differ" if too_many else ""
        return replace(blank, cells=native.size, mismatch=mismatch)
    # a NaN or an infinity that float64 has is right, too: float32 may overflow before it
    expected = np.where(_kinds(ort) == _kinds(float64), ort, native)
    if mismatch := _mask_mismatch(ort, expected, may_drop_nan, reference_may_drop_nan):
        return replace(blank, mismatch=mismatch)
    ort_errors, torch_errors, finite = absolute_errors(ort, native, float64)
    return replace(
        blank,
        cells=torch_errors.size,
        rms=rms(ort_errors),
        rms_torch=rms(torch_errors),
        max=float(ort_errors.max(initial=0.0)),
        max_torch=float(torch_errors.max(initial=0.0)),
        scale=1.0 if blank.kind == "gate" else rms(float64[finite]),
        eps=max(EPS, float(np.finfo(native.dtype).eps)),
        dropped_nans=int(np.count_nonzero(np.isnan(expected) & ~np.isnan(ort))),
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
