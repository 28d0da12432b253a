"""The figures of a whole proof, by provider, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from export.parity.error_stats import Figures, Histogram, Kind, errors
from export.parity.verdict import haze, judge, pooled
from export.source import Array
from service.artifact.manifest import TensorParity


@dataclass(frozen=True)
class Broken:
    """The first tensor that is not as it should be, and what is wrong with it, in a sentence."""

    tensor: str
    says: str


class Tally:
    """Collects the figures of every tensor; `kinds` names them in the order data flow."""

    def __init__(self, kinds: dict[str, Kind], providers: int) -> None:
        self.kinds = kinds
        self.figures: tuple[list[Figures], ...] = tuple([] for _ in range(providers))
        self._histograms = {name: (Histogram(), Histogram()) for name in kinds}

    def add(self, provider: int, found: Figures) -> None:
        """Note what came of one tensor in one batch."""
        self.figures[provider].append(found)

    def count(self, name: str, ours: Array, own: Array, truth: Array) -> None:
        """Count the errors of both sides by their size."""
        for histogram, of_side in zip(self._histograms[name], errors(ours, own, truth)[:2], strict=True):
            histogram.add(of_side)

    def histograms(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The errors of each tensor by their size: onnxruntime's, and PyTorch's."""
        return {
            name: (tuple(ours.counts.tolist()), tuple(own.counts.tolist()))
            for name, (ours, own) in self._histograms.items()
        }

    def broken(self, noise: float) -> Broken | None:
        """The first tensor in the order data flow of which something does not hold, with any provider."""
        sides = []
        for figures in self.figures:
            found: dict[str, list[Figures]] = {name: [] for name in self.kinds}
            for one in figures:
                found[one.tensor].append(one)
            sides.append((found, haze([one for of_tensor in found.values() for one in of_tensor])))
        for name in self.kinds:
            for found, over in sides:
                says = judge(found[name], over=over, noise=noise) if found[name] else None
                if says is not None:
                    return Broken(name, says)
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
            rms=max(pooled([(one.cells, one.rms) for one in of_side]) for of_side in sides),
            rms_torch=max(pooled([(one.cells, one.rms_torch) for one in of_side]) for of_side in sides),
            max=max((one.max for of_side in sides for one in of_side), default=0.0),
            max_torch=max((one.max_torch for of_side in sides for one in of_side), default=0.0),
        )


def table(tensors: Sequence[TensorParity], broken: str = "") -> str:
    """The errors of each tensor beside PyTorch's own, as lines of text; the one that broke is marked."""
    width = max(map(len, ("tensor", *(one.name for one in tensors))))
    head = f"{'tensor':{width}}  {'rms':>8}  {'PyTorch':>8}  {'max':>8}  {'PyTorch':>8}"
    lines = [
        f"{one.name:{width}}  {one.rms:8.1e}  {one.rms_torch:8.1e}  {one.max:8.1e}  {one.max_torch:8.1e}"
        f"{'  <- here' if one.name == broken else ''}"
        for one in tensors
    ]
    return "\n".join((head, *lines))
