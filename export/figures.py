"""How far a tensor was from the truth, as numbers, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from export.source import Array

Kind = Literal["output", "gate", "layer"]

# the spacing of fp32 numbers at 1, and the smallest normal one, below which some devices know only zero
EPS = 2.0**-23
TINY = 2.0**-126
# above this share of a tensor's own size PyTorch's rounding errors are no longer small
ILL = 1e-4
# errors are counted by quarters of a decade from 1e-12 up, those below in the first bin
DECADES, BINS = (-12.0, -2.0), 41


@dataclass(frozen=True)
class Figures:
    """One tensor in one batch: the errors of both sides over the cells that are finite on all sides.

    `scale` is the root mean square of the truth, 1 for gates. `forgotten`
    counts the cells where onnxruntime made a number of a NaN; `fault` says in words what no number can:
    shapes, types, masks or whole numbers that differ.
    """

    tensor: str
    kind: Kind
    batch: str
    ordinary: bool
    gain: float = 1.0
    cells: int = 0
    rms: float = 0.0
    rms_torch: float = 0.0
    max: float = 0.0
    max_torch: float = 0.0
    scale: float = 0.0
    forgotten: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Yardstick:
    """PyTorch's own error for each unit of scale, over all ordinary batches.

    In a batch of few cells PyTorch's error may happen to be next to nothing: what it usually is counts too,
    times the gain of the batch, since rounding errors before a gate grow with what they are errors of.
    """

    rms: float = 0.0
    max: float = 0.0

    def bounds(self, of: Figures) -> tuple[float, float]:
        """How large onnxruntime's error may be: root mean square, and greatest."""
        rms = max(of.rms_torch, self.rms * of.scale * of.gain)
        greatest = max(of.max_torch, self.max * of.scale * of.gain)
        return 4 * rms + EPS * of.scale + TINY, 8 * greatest + 8 * EPS * of.scale + TINY


@dataclass(frozen=True)
class Broken:
    """The first thing that does not hold of a tensor, as a sentence; `ill` where parity means nothing."""

    tensor: str
    says: str
    ill: bool = False


@dataclass
class Histogram:
    """Errors by magnitude, counted in `BINS` bins."""

    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, errors: Array) -> None:
        """Count more errors, none of them negative."""
        low, high = DECADES
        with np.errstate(divide="ignore"):
            places = np.log10(errors) - low
        places = np.clip(np.ceil(places * (BINS - 1) / (high - low)), 0, BINS - 1)
        self.counts += np.bincount(places.astype(np.int64).ravel(), minlength=BINS)


def measured(
    blank: Figures,
    *,
    ours: Array,
    own: Array,
    truth: Array,
    lossy: bool = False,
    histograms: tuple[Histogram, Histogram] | None = None,
) -> Figures:
    """The figures of what onnxruntime gave (`ours`) and PyTorch gave (`own`), by the truth.

    Of a `lossy` value a NaN may be forgotten, and is counted.
    """
    if fault := misfit(ours, own):
        return replace(blank, fault=fault)
    if own.dtype.kind != "f":
        return replace(blank, cells=own.size, fault=unequal(ours, own, truth))
    if fault := unlike_masks(ours, own, lossy):
        return replace(blank, cells=own.size, fault=fault)
    forgotten = int(np.count_nonzero(np.isnan(own) & ~np.isnan(ours)))
    truth = truth.astype(np.float64, copy=False)
    finite = np.isfinite(own) & np.isfinite(truth)
    if not finite.all():
        ours, own, truth = ours[finite], own[finite], truth[finite]
    e_ours, e_own = np.abs(ours - truth), np.abs(own - truth)
    if histograms is not None:
        histograms[0].add(e_ours)
        histograms[1].add(e_own)
    return replace(_filled(blank, e_ours, e_own, truth), forgotten=forgotten)


def moved(
    blank: Figures,
    *,
    ours: tuple[Array, Array],
    own: tuple[Array, Array] | None,
    truth: Array,
) -> Figures:
    """The figures of rows that were computed twice, in two batches: how far they moved on either side."""
    if fault := misfit(*ours) or unlike_masks(*ours):
        return replace(blank, fault=fault)
    finite = np.isfinite(ours[0]) & np.isfinite(truth)
    by, by_own = (np.abs(pair[0][finite].astype(np.float64) - pair[1][finite]) for pair in (ours, own or ours[:1] * 2))
    return _filled(blank, by, by_own, truth[finite])


def _filled(blank: Figures, e_ours: Array, e_own: Array, truth: Array) -> Figures:
    return replace(
        blank,
        cells=truth.size,
        rms=_rms(e_ours),
        rms_torch=_rms(e_own),
        max=float(e_ours.max(initial=0.0)),
        max_torch=float(e_own.max(initial=0.0)),
        scale=1.0 if blank.kind == "gate" else _rms(truth),
    )


def misfit(ours: Array, own: Array) -> str:
    """What is wrong with a shape or type, or nothing."""
    if ours.shape != own.shape:
        return f"expected shape {list(own.shape)}, got {list(ours.shape)}"
    if ours.dtype != own.dtype:
        return f"expected {own.dtype}, got {ours.dtype}"
    return ""


def unequal(ours: Array, own: Array, truth: Array) -> str:
    """What is wrong with whole numbers or truth values, or nothing; the truth is as good as PyTorch's word."""
    wrong = int(np.count_nonzero((ours != own) & (ours != truth)))
    return f"expected the network's own values, {wrong} of {own.size} differ" if wrong else ""


def unlike_masks(ours: Array, own: Array, lossy: bool = False) -> str:
    """What is wrong with the places of NaN and of either infinity, or nothing."""
    if lossy:
        known = ~np.isnan(own)
        ours, own = ours[known], own[known]
    for name, mask in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        here, there = mask(ours), mask(own)
        if not np.array_equal(here, there):
            return (
                f"expected {name} in the {np.count_nonzero(there)} cells where the network has it, "
                f"got it in {np.count_nonzero(here)}, {np.count_nonzero(here & ~there)} of them others"
            )
    return ""


def yardstick(figures: Sequence[Figures]) -> Yardstick:
    """PyTorch's own error for each unit of scale, of one tensor."""
    fit = [one for one in figures if one.ordinary and one.scale > 0 and not one.fault]
    cells = sum(one.cells for one in fit)
    if not cells:
        return Yardstick()
    mean = sum(one.cells * (one.rms_torch / one.scale) ** 2 for one in fit) / cells
    return Yardstick(mean**0.5, max(one.max_torch / one.scale for one in fit))


def judge(figures: Sequence[Figures]) -> Broken | None:
    """What does not hold of one tensor, by all of its figures; None where all is well."""
    by = yardstick(figures)
    tensor = figures[0].tensor
    if by.rms > ILL:
        return Broken(
            tensor,
            f"{tensor} is ill-conditioned: parity means nothing here, since PyTorch's own rounding errors "
            f"are {by.rms:.1e} of its size, and at most {ILL:.0e} was expected",
            ill=True,
        )
    for one in figures:
        where = f"{tensor} with the batch {one.batch!r}"
        if one.fault:
            return Broken(tensor, f"{where}: {one.fault}")
        rms, greatest = by.bounds(one)
        if not one.rms <= rms:
            return Broken(
                tensor,
                f"{where}: expected a root mean square error of at most {rms:.2e}, PyTorch's own being "
                f"{one.rms_torch:.2e}, got {one.rms:.2e}",
            )
        if not one.max <= greatest:
            return Broken(
                tensor,
                f"{where}: expected errors of at most {greatest:.2e}, PyTorch's own being at most "
                f"{one.max_torch:.2e}, got {one.max:.2e}",
            )
    return None


def _rms(values: Array) -> float:
    if not values.size:
        return 0.0
    # by the greatest, so that squares neither overflow nor vanish
    top = float(np.abs(values).max())
    return top * float(np.sqrt(np.mean(np.square(values / top)))) if top > 0 else 0.0
