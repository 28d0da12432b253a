"""What follows from the figures: whether a tensor is as close to the truth as PyTorch is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from export.figures import EPS, Figures

# how much further from the truth than PyTorch onnxruntime may be, by root mean square and at worst
RMS, WORST = 4.0, 8.0
# above this share of a tensor's own size PyTorch's rounding errors are no longer small, in fp32
ILL = 1e-4
# the smallest normal number of fp32: below it some devices know only zero
TINY = 2.0**-126

# tensors and batches of which nothing can be told
Haze = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Yardstick:
    """PyTorch's own error for each unit of scale, over all ordinary batches.

    In a batch of few cells PyTorch's error may happen to be next to nothing; what it usually is counts too.
    Where the truth itself sways, errors may be up to where nothing can be told.
    """

    rms: float = 0.0
    max: float = 0.0

    def bounds(self, of: Figures) -> tuple[float, float]:
        """How large onnxruntime's error may be: by root mean square, and at worst."""
        usual, worst = max(of.rms_torch, self.rms * of.scale), max(of.max_torch, self.max * of.scale)
        least = of.eps * of.scale
        if of.sway is not None:
            # a few cells next to where a gate switches make up the whole of it, others on either side
            usual, least = max(usual, of.sway), _ill(of) * of.scale
            worst = max(worst, usual * of.cells**0.5)
        return RMS * usual + least + TINY, WORST * (worst + least) + TINY


def yardstick(figures: Sequence[Figures], noise: float = 0.0) -> Yardstick:
    """PyTorch's own error in one tensor; at least the noise of the truth itself."""
    fit = [one for one in figures if one.ordinary and one.scale > 0 and one.cells and not one.fault]
    cells = sum(one.cells for one in fit)
    if not cells:
        return Yardstick(noise, noise)
    mean = sum(one.cells * (one.rms_torch / one.scale) ** 2 for one in fit) / cells
    return Yardstick(max(noise, mean**0.5), max(noise, *(one.max_torch / one.scale for one in fit)))


def haze(figures: Sequence[Figures]) -> Haze:
    """Where rounding decides, or has decided before: the figures are in the order data flow.

    Numbers far from data bring gates next to where they switch, and what follows takes one way or another.
    """
    lost: set[str] = set()
    found = set()
    for one in figures:
        if not one.ordinary and max(one.rms_torch, one.sway or 0.0) > _ill(one) * one.scale:
            lost.add(one.batch)
        if one.batch in lost:
            found.add((one.tensor, one.batch))
    return frozenset(found)


def judge(figures: Sequence[Figures], *, over: Haze = frozenset(), noise: float = 0.0) -> str | None:
    """What does not hold of one tensor, in a sentence, by all of its figures; None where all is well."""
    by = yardstick(figures, noise)
    tensor = figures[0].tensor
    if by.rms > _ill(figures[0]):
        return (
            f"{tensor} is ill-conditioned: parity means nothing here, since PyTorch's own rounding errors "
            f"are {by.rms:.1e} of its size, and at most {_ill(figures[0]):.0e} was expected"
        )
    for one in figures:
        where = f"{tensor} with the batch {one.batch!r}"
        if one.fault:
            return f"{where}: {one.fault}"
        usual, worst = by.bounds(one)
        if (one.tensor, one.batch) in over:
            continue
        if not one.rms <= usual:
            return (
                f"{where}: expected a root mean square error of at most {usual:.2e}, PyTorch's own being "
                f"{one.rms_torch:.2e}, got {one.rms:.2e}"
            )
        if not one.max <= worst:
            return (
                f"{where}: expected errors of at most {worst:.2e}, PyTorch's own being at most "
                f"{one.max_torch:.2e}, got {one.max:.2e}"
            )
    if any(one.ordinary for one in figures) and not any(one.cells for one in figures if one.ordinary):
        return f"{tensor} has no finite number in any batch: parity means nothing here"
    return None


def _ill(of: Figures) -> float:
    """The share of its size that PyTorch's error may be, in the precision of the tensor."""
    return ILL * of.eps / EPS
