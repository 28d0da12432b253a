"""What follows from the figures: whether a tensor is as close to the truth as PyTorch is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from export.parity.error_stats import EPS, ErrorHistogram, TensorErrors, TensorKind, absolute_errors
from export.source import Array
from service.artifact.manifest import TensorParity

# how much further from the truth than PyTorch onnxruntime may be, by root mean square and at worst
RMS_FACTOR, MAX_FACTOR = 4.0, 8.0
# how many deviations the error of a batch may lie above what it usually is: one in a thousand does
FEW_ROWS_MARGIN = 3.0
# above this share of a tensor's own size PyTorch's rounding errors are no longer small, in fp32
ILL_CONDITIONED = 1e-4
# the smallest normal number of fp32: below it some devices know only zero
SMALLEST_NORMAL = 2.0**-126

# tensors and batches of which nothing can be told
Unjudged = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class ErrorBound:
    """PyTorch's own error in one tensor over all ordinary batches, for each unit of the tensor's size there.

    In a batch of few rows PyTorch's error may happen to be next to nothing: what it usually is counts too,
    and the fewer the rows the more is left to chance.
    """

    rms: float
    max: float
    scale: float

    def bounds(self, of: TensorErrors) -> tuple[float, float]:
        """How large onnxruntime's error may be: by root mean square, and at worst."""
        # rows of data that come out small are made of numbers as large as any
        scale = max(of.scale, self.scale) if of.ordinary else of.scale
        chance = 1 + FEW_ROWS_MARGIN / of.rows**0.5
        usual = max(of.rms_torch, self.rms * scale * chance)
        worst = max(of.max_torch, self.max * scale * chance)
        least = of.eps * scale
        if of.sway is not None:
            # a few cells next to where a gate switches make up the whole of it, others on either side
            usual, least = max(usual, of.sway), _ill_conditioned(of) * scale
            worst = max(worst, usual * of.cells**0.5)
        return RMS_FACTOR * usual + least + SMALLEST_NORMAL, MAX_FACTOR * (worst + least) + SMALLEST_NORMAL


def error_bound(figures: Sequence[TensorErrors], noise: float = 0.0) -> ErrorBound:
    """PyTorch's own error in one tensor; at least the noise of the truth itself."""
    fit = _ordinary(figures)
    scale = pooled_rms([(one.cells, one.scale) for one in fit])
    if not scale:
        return ErrorBound(noise, noise, scale)
    rms = pooled_rms([(one.cells, one.rms_torch) for one in fit])
    return ErrorBound(max(noise, rms / scale), max(noise, *(one.max_torch / scale for one in fit)), scale)


def find_unjudged(figures: Sequence[TensorErrors]) -> Unjudged:
    """Where rounding decides, or has decided before: the figures are in the order data flow.

    Numbers far from data bring gates next to where they switch, and what follows takes one way or another.
    """
    lost: set[str] = set()
    found = set()
    for one in figures:
        if not one.ordinary and max(one.rms_torch, one.sway or 0.0) > _ill_conditioned(one) * one.scale:
            lost.add(one.batch)
        if one.batch in lost:
            found.add((one.tensor, one.batch))
    return frozenset(found)


def check_tensor(
    figures: Sequence[TensorErrors], *, over: Unjudged = frozenset(), noise: float = 0.0
) -> str | None:
    """What does not hold of one tensor, in a sentence, by all of its figures; None where all is well."""
    by, tensor = error_bound(figures, noise), figures[0].tensor
    if by.rms > _ill_conditioned(figures[0]):
        return (
            f"{tensor} is ill-conditioned: parity means nothing here, since PyTorch's own rounding errors "
            f"are {by.rms:.1e} of its size, and at most {_ill_conditioned(figures[0]):.0e} was expected"
        )
    for one in figures:
        where = f"{tensor} with the batch {one.batch!r}"
        if one.fault:
            return f"{where}: {one.fault}"
        if (one.tensor, one.batch) in over:
            continue
        usual, worst = by.bounds(one)
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
    return _over_all(tensor, _ordinary(figures), by)


def pooled_rms(parts: Sequence[tuple[int, float]]) -> float:
    """The root mean square over several batches, each with its cells."""
    cells = sum(count for count, _ in parts)
    return float(sum(count * rms**2 for count, rms in parts) / cells) ** 0.5 if cells else 0.0


def _over_all(tensor: str, ordinary: Sequence[TensorErrors], by: ErrorBound) -> str | None:
    """Over many rows nothing is left to chance."""
    if not any(one.cells for one in ordinary):
        return f"{tensor} has no finite number in any batch: parity means nothing here"
    usual = RMS_FACTOR * by.rms * by.scale + ordinary[0].eps * by.scale + SMALLEST_NORMAL
    rms = pooled_rms([(one.cells, one.rms) for one in ordinary])
    if rms <= usual:
        return None
    return (
        f"{tensor} over all ordinary batches: expected a root mean square error of at most {usual:.2e}, "
        f"PyTorch's own being {by.rms * by.scale:.2e}, got {rms:.2e}"
    )


def _ordinary(figures: Sequence[TensorErrors]) -> list[TensorErrors]:
    return [one for one in figures if one.ordinary and not one.fault]


def _ill_conditioned(of: TensorErrors) -> float:
    """The share of its size that PyTorch's error may be, in the precision of the tensor."""
    return ILL_CONDITIONED * of.eps / EPS


@dataclass(frozen=True)
class FirstFailure:
    """The first tensor that is not as it should be, and what is wrong with it, in a sentence."""

    tensor: str
    says: str


class ErrorTable:
    """Collects the figures of every tensor; `kinds` names them in the order data flow."""

    def __init__(self, kinds: dict[str, TensorKind], providers: int) -> None:
        self.kinds = kinds
        self.figures: tuple[list[TensorErrors], ...] = tuple([] for _ in range(providers))
        self._histograms = {name: (ErrorHistogram(), ErrorHistogram()) for name in kinds}

    def add(self, provider: int, found: TensorErrors) -> None:
        """Note what came of one tensor in one batch."""
        self.figures[provider].append(found)

    def count(self, name: str, ours: Array, own: Array, truth: Array) -> None:
        """Count the errors of both sides by their size."""
        for histogram, of_side in zip(
            self._histograms[name], absolute_errors(ours, own, truth)[:2], strict=True
        ):
            histogram.add(of_side)

    def histograms(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The errors of each tensor by their size: onnxruntime's, and PyTorch's."""
        return {
            name: (tuple(ours.counts.tolist()), tuple(own.counts.tolist()))
            for name, (ours, own) in self._histograms.items()
        }

    def broken(self, noise: float) -> FirstFailure | None:
        """The first tensor in the order data flow of which something does not hold, with any provider."""
        sides = []
        for figures in self.figures:
            found: dict[str, list[TensorErrors]] = {name: [] for name in self.kinds}
            for one in figures:
                found[one.tensor].append(one)
            sides.append((found, find_unjudged([one for of_tensor in found.values() for one in of_tensor])))
        for name in self.kinds:
            for found, over in sides:
                says = check_tensor(found[name], over=over, noise=noise) if found[name] else None
                if says is not None:
                    return FirstFailure(name, says)
        return None

    def tensors(self) -> tuple[TensorParity, ...]:
        """Each tensor's errors over all ordinary batches, with the provider that does worst."""
        return tuple(self._tensor(name) for name in self.kinds)

    def _tensor(self, name: str) -> TensorParity:
        sides = [
            [one for one in figures if one.tensor == name and one.ordinary and not one.fault]
            for figures in self.figures
        ]
        return TensorParity(
            name=name,
            rms=max(pooled_rms([(one.cells, one.rms) for one in of_side]) for of_side in sides),
            rms_torch=max(pooled_rms([(one.cells, one.rms_torch) for one in of_side]) for of_side in sides),
            max=max((one.max for of_side in sides for one in of_side), default=0.0),
            max_torch=max((one.max_torch for of_side in sides for one in of_side), default=0.0),
        )


def format_table(tensors: Sequence[TensorParity], broken: str = "") -> str:
    """The errors of each tensor beside PyTorch's own, as lines of text; the one that broke is marked."""
    width = max(map(len, ("tensor", *(one.name for one in tensors))))
    head = f"{'tensor':{width}}  {'rms':>8}  {'PyTorch':>8}  {'max':>8}  {'PyTorch':>8}"
    lines = [
        f"{one.name:{width}}  {one.rms:8.1e}  {one.rms_torch:8.1e}  {one.max:8.1e}  {one.max_torch:8.1e}"
        f"{'  <- here' if one.name == broken else ''}"
        for one in tensors
    ]
    return "\n".join((head, *lines))
