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

    `scale` is the root mean square of the truth, 1 for gates; `sway` is how
    far the truth itself moves when the input of a batch that is not ordinary does a little. `forgotten`
    counts the cells where onnxruntime made a number of a NaN; `fault` says in words what no number can:
    shapes, types, masks or whole numbers that differ.
    """

    tensor: str
    kind: Kind
    batch: str
    ordinary: bool
    cells: int = 0
    rms: float = 0.0
    rms_torch: float = 0.0
    max: float = 0.0
    max_torch: float = 0.0
    scale: float = 0.0
    sway: float = 0.0
    forgotten: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Yardstick:
    """PyTorch's own error for each unit of scale, over all ordinary batches.

    In a batch of few cells PyTorch's error may happen to be next to nothing; what it usually is counts too.
    """

    rms: float = 0.0
    max: float = 0.0

    def bounds(self, of: Figures) -> tuple[float, float]:
        """How large onnxruntime's error may be: root mean square, and greatest."""
        rms = max(of.rms_torch, self.rms * of.scale)
        greatest = max(of.max_torch, self.max * of.scale)
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
    shaken: Array | None = None,
    lossy: bool = False,
) -> Figures:
    """The figures of what onnxruntime gave (`ours`) and PyTorch gave (`own`), by the truth.

    `shaken` is what the truth becomes when the input moves a little. Of a `lossy` value a NaN may be
    forgotten, and is counted.
    """
    if fault := misfit(ours, own):
        return replace(blank, fault=fault)
    if own.dtype.kind != "f":
        return replace(blank, cells=own.size, fault=unequal(ours, own, truth))
    if fault := unlike_masks(ours, own, lossy):
        return replace(blank, cells=own.size, fault=fault)
    forgotten = int(np.count_nonzero(np.isnan(own) & ~np.isnan(ours)))
    e_ours, e_own, finite = errors(ours, own, truth)
    sway = np.zeros(0) if shaken is None else np.abs(shaken[finite] - truth[finite])
    return replace(
        blank,
        cells=e_own.size,
        rms=_rms(e_ours),
        rms_torch=_rms(e_own),
        max=float(e_ours.max(initial=0.0)),
        max_torch=float(e_own.max(initial=0.0)),
        scale=_scale(blank, truth[finite]),
        sway=_rms(sway[np.isfinite(sway)]),
        forgotten=forgotten,
    )


def moved(blank: Figures, *, ours: Array, there: Array, truth: Array) -> Figures:
    """The figures of numbers that stand in two places and should be one: how far apart they are."""
    if fault := misfit(ours, there):
        return replace(blank, fault=fault)
    if ours.dtype.kind != "f":
        return replace(blank, cells=ours.size, fault=unequal(ours, there, there))
    if fault := unlike_masks(ours, there):
        return replace(blank, cells=ours.size, fault=fault)
    apart, _, finite = errors(ours, there, there)
    return replace(
        blank,
        cells=apart.size,
        rms=_rms(apart),
        max=float(apart.max(initial=0.0)),
        scale=_scale(blank, truth[np.isfinite(truth)]),
    )


def errors(ours: Array, own: Array, truth: Array) -> tuple[Array, Array, Array]:
    """Either side's errors, and which cells they are of: those that are finite on all sides."""
    finite = np.isfinite(ours) & np.isfinite(own) & np.isfinite(truth)
    true = truth[finite].astype(np.float64, copy=False)
    return np.abs(ours[finite] - true), np.abs(own[finite] - true), finite


def _scale(of: Figures, truth: Array) -> float:
    return 1.0 if of.kind == "gate" else _rms(truth.astype(np.float64, copy=False))


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


def hazy(figures: Sequence[Figures]) -> frozenset[tuple[str, str]]:
    """Tensor and batch where nothing can be told: rounding decides there, or has decided before.

    Numbers far from data bring gates next to where they switch, and what follows takes one way or another.
    The figures are in the order data flow.
    """
    lost: set[str] = set()
    found = set()
    for one in figures:
        if not one.ordinary and max(one.rms_torch, one.sway) > ILL * one.scale:
            lost.add(one.batch)
        if one.batch in lost:
            found.add((one.tensor, one.batch))
    return frozenset(found)


def judge(figures: Sequence[Figures], haze: frozenset[tuple[str, str]] = frozenset()) -> Broken | None:
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
        if (one.tensor, one.batch) in haze:
            continue
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
