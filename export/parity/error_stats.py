"""How far a tensor was from the truth, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from export.source import Array

TensorKind = Literal["output", "gate", "layer"]

# the spacing of fp32 numbers at 1
EPS = 2.0**-23
# errors are counted in equal bins between these powers of ten
DECADES, BINS = (-12.0, -2.0), 41
# the share of whole numbers that may be choices between two that are level
MAX_TIED_SHARE = 0.01


@dataclass(frozen=True)
class TensorErrors:
    """One tensor in one batch: the errors of both sides over the cells that are finite on all sides.

    `rows` counts those with numbers of their own. `scale` is the root mean square of the truth, 1 for gates,
    and `eps` the spacing at 1 of the tensor's own numbers, at least that of fp32. `sway` is how far the truth
    itself moves when the input does a little, None where that was not tried. `forgotten` counts the cells
    where onnxruntime made a number of a NaN; `fault` says in words what no number can: shapes, types, masks
    or whole numbers that differ.
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
    sway: float | None = None
    forgotten: int = 0
    fault: str = ""


@dataclass
class ErrorHistogram:
    """Errors by magnitude, counted in `BINS` bins."""

    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, found: Array) -> None:
        """Count more errors, none of them negative; those beyond either end count in its bin."""
        low, high = DECADES
        with np.errstate(divide="ignore"):
            places = (np.log10(found) - low) * (BINS / (high - low))
        places = np.clip(places, 0, BINS - 1).astype(np.int64)
        self.counts += np.bincount(places.ravel(), minlength=BINS)


def compare_tensors(
    blank: TensorErrors,
    *,
    ours: Array,
    own: Array,
    truth: Array,
    shaken: Array | None = None,
    lossy: bool = False,
    either: bool = False,
) -> TensorErrors:
    """The figures of what onnxruntime gave (`ours`) and PyTorch gave (`own`), by the truth.

    `shaken` is what the truth becomes when the input moves a little. Of a `lossy` value a NaN may be
    forgotten, and is counted; on `either` side, where `own` is no PyTorch that passes it on. Whole numbers
    are held to PyTorch's in ordinary batches, and to the truth's where two are level.
    """
    if fault := _shape_mismatch(ours, own):
        return replace(blank, fault=fault)
    if own.dtype.kind != "f":
        level = np.zeros(own.shape, bool) if shaken is None else shaken != truth
        wrong = int(np.count_nonzero((ours != own) & (ours != truth) & ~level)) if blank.ordinary else 0
        says = f"expected the network's own values, {wrong} of {own.size} differ" if wrong else ""
        return replace(blank, cells=own.size, fault=says)
    if fault := _mask_mismatch(ours, own, lossy, either):
        return replace(blank, fault=fault)
    e_ours, e_own, finite = absolute_errors(ours, own, truth)
    return replace(
        blank,
        cells=e_own.size,
        rms=rms(e_ours),
        rms_torch=rms(e_own),
        max=float(e_ours.max(initial=0.0)),
        max_torch=float(e_own.max(initial=0.0)),
        scale=_scale(blank, truth[finite]),
        eps=_eps(own),
        sway=None if shaken is None else _sensitivity(truth[finite], shaken[finite]),
        forgotten=int(np.count_nonzero(np.isnan(own) & ~np.isnan(ours))),
    )


def compare_places(blank: TensorErrors, *, ours: Array, there: Array, truth: Array) -> TensorErrors:
    """The figures of numbers that stand in two places and should be one: how far apart they are.

    Whole numbers that differ may be choices between two that are level, as long as they are few.
    """
    if fault := _shape_mismatch(ours, there):
        return replace(blank, fault=fault)
    if ours.dtype.kind != "f":
        wrong = int(np.count_nonzero(ours != there))
        says = (
            f"expected the same values, {wrong} of {ours.size} differ"
            if wrong > MAX_TIED_SHARE * ours.size
            else ""
        )
        return replace(blank, cells=ours.size, fault=says)
    if fault := _mask_mismatch(ours, there):
        return replace(blank, fault=fault)
    apart, _, _ = absolute_errors(ours, there, there)
    return replace(
        blank,
        cells=apart.size,
        rms=rms(apart),
        max=float(apart.max(initial=0.0)),
        scale=_scale(blank, truth[np.isfinite(truth)]),
        eps=_eps(there),
    )


def absolute_errors(ours: Array, own: Array, truth: Array) -> tuple[Array, Array, Array]:
    """Either side's errors, and which cells they are of: those that are finite on all sides."""
    finite = np.isfinite(ours) & np.isfinite(own) & np.isfinite(truth)
    true = truth[finite].astype(np.float64, copy=False)
    return np.abs(ours[finite] - true), np.abs(own[finite] - true), finite


def rms(values: Array) -> float:
    """The root mean square, of numbers of any size; 0 of none."""
    top = float(np.abs(values).max(initial=0.0))
    # by the greatest, so that squares neither overflow nor vanish
    return top * float(np.sqrt(np.mean(np.square(values / top, dtype=np.float64)))) if top > 0 else 0.0


def _shape_mismatch(ours: Array, own: Array) -> str:
    """What is wrong with a shape or a type; nothing where all is well."""
    if ours.shape != own.shape:
        return f"expected shape {list(own.shape)}, got {list(ours.shape)}"
    return "" if ours.dtype == own.dtype else f"expected {own.dtype}, got {ours.dtype}"


def _mask_mismatch(ours: Array, own: Array, lossy: bool = False, either: bool = False) -> str:
    """What is wrong with the places of NaN and of either infinity; nothing where all is well."""
    if lossy:
        known = ~np.isnan(own) & ~(np.isnan(ours) & either)
        ours, own = ours[known], own[known]
    for name, mask in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        here, there = mask(ours), mask(own)
        if not np.array_equal(here, there):
            return (
                f"expected {name} in the {np.count_nonzero(there)} cells where the network has it, "
                f"got it in {np.count_nonzero(here)}, {np.count_nonzero(here & ~there)} of them others"
            )
    return ""


def _sensitivity(truth: Array, shaken: Array) -> float:
    moves = np.abs(shaken - truth)
    return rms(moves[np.isfinite(moves)])


def _scale(of: TensorErrors, truth: Array) -> float:
    return 1.0 if of.kind == "gate" else rms(truth)


def _eps(own: Array) -> float:
    return max(EPS, float(np.finfo(own.dtype).eps))
