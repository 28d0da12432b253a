"""Batches run on every side, one after another, and the figures that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from export.batches import Batch
from export.errors import ParityError, UntraceableError
from export.figures import EPS, Broken, Figures, Histogram, Kind, errors, hazy, judge, measured, moved
from export.source import Array
from export.truth import REST, Answers, RejectedError, Truth
from service import manifest
from service.runtime import Runtime

# how far a row in float64 may move with its neighbours before the network is said to mix rows
MIXED = 1e-9
# rows of a large batch that are looked at in float64
PART = 8
# by what share of itself an input is moved to see how much an answer hangs on its last digits
SHAKE = 16 * EPS


class Trial:
    """The figures of every batch so far: for each provider, of each tensor in the order data flow."""

    def __init__(
        self,
        truth: Truth,
        runtimes: Sequence[Runtime],
        inputs: Sequence[str],
        kinds: Mapping[str, Kind],
        lossy: frozenset[str],
    ) -> None:
        self.figures: tuple[list[Figures], ...] = tuple([] for _ in runtimes)
        self.histograms = {name: (Histogram(), Histogram()) for name in kinds}
        self.records: list[manifest.Batch] = []
        self.warnings: list[str] = []
        self.coupled = False
        self.forgetful = ""
        self._truth = truth
        self._runtimes = runtimes
        self._inputs = inputs
        self._kinds = kinds
        self._lossy = lossy
        self._first: tuple[Batch, Answers, list[Answers]] | None = None

    def run(self, batch: Batch) -> None:
        """Compare one batch; one that the network itself does not take is left out."""
        try:
            own = self._truth.own(batch)
        except RejectedError as error:
            if batch.shared:
                self.warnings.append(f"the network takes no batch of {batch.name} ({error})")
            return
        everything = [self._answers(runtime, batch) for runtime in self._runtimes]
        if not self.records:
            self._expect_steady(batch, own, everything)
        self.records.append(batch.record())
        wide = self._wide(batch, own)
        if batch.shared:
            self._compare_rows(batch, wide, everything)
        if batch.name == "one NaN":
            self._expect_kept_apart(batch, own)
        if len(wide[next(iter(own))]) < batch.rows:
            self._compare_sides(batch, own, wide, everything)
            own, *everything = (_last(answers, PART) for answers in (own, *everything))
        self._measure(batch, own, wide, everything)
        if not batch.small and self.broken() is not None:
            # only now is it worth its time to see in which layer it began
            self.run(replace(batch, small=True, shared=False))

    def _measure(self, batch: Batch, own: Answers, wide: Answers, everything: list[Answers]) -> None:
        shaken = self._truth.wide(batch.shaken(SHAKE)) if batch.name == "large" else {}
        for at, (figures, ours) in enumerate(zip(self.figures, everything, strict=True)):
            for name, answer in own.items():
                found = measured(
                    Figures(name, self._kinds[name], batch.name, batch.ordinary),
                    ours=ours[name],
                    own=answer,
                    truth=wide[name],
                    shaken=shaken.get(name),
                    lossy=not batch.ordinary and name in self._lossy,
                )
                figures.append(found)
                if batch.ordinary and not at and not found.fault:
                    for histogram, of_side in zip(
                        self.histograms[name], errors(ours[name], answer, wide[name])[:2], strict=True
                    ):
                        histogram.add(of_side)
                if found.forgotten and not self.forgetful:
                    self.forgetful = (
                        f"where a number is NaN, onnxruntime forgets it in maxima and recurrent layers: in "
                        f"{name} {found.forgotten} cells are numbers that the network says are NaN"
                    )

    def broken(self) -> Broken | None:
        """What does not hold of the first tensor that is not as it should be, by any provider."""
        sides = [self._in_order(figures) for figures in self.figures]
        for name in self._kinds:
            for of_tensor, haze in sides:
                found = judge(of_tensor[name], haze)
                if found is not None:
                    return found
        return None

    def _in_order(
        self, figures: Sequence[Figures]
    ) -> tuple[dict[str, list[Figures]], frozenset[tuple[str, str]]]:
        """The figures by tensor, and the haze over them."""
        found: dict[str, list[Figures]] = {name: [] for name in self._kinds}
        for one in figures:
            found[one.tensor].append(one)
        return found, hazy([one for of_tensor in found.values() for one in of_tensor])

    def tensors(self) -> tuple[manifest.TensorParity, ...]:
        """Each tensor's errors over all ordinary batches, by the provider that does worst."""
        found = []
        for name in self._kinds:
            fit = [
                [one for one in figures if one.tensor == name and one.ordinary and not one.fault]
                for figures in self.figures
            ]
            found.append(
                manifest.TensorParity(
                    name=name,
                    rms=max(_pooled([(one.cells, one.rms) for one in of_one]) for of_one in fit),
                    rms_torch=max(_pooled([(one.cells, one.rms_torch) for one in of_one]) for of_one in fit),
                    max=max((one.max for of_one in fit for one in of_one), default=0.0),
                    max_torch=max((one.max_torch for of_one in fit for one in of_one), default=0.0),
                )
            )
        return tuple(found)

    def _answers(self, runtime: Runtime, batch: Batch) -> Answers:
        names = [tensor.name for tensor in runtime.inputs]
        if len(names) != len(self._inputs):
            raise ParityError(
                f"inputs: expected the network's {len(self._inputs)} ({', '.join(self._inputs)}), the graph "
                f"has {len(names)} ({', '.join(names)})"
            )
        feeds = {name: batch.arrays[own] for name, own in zip(names, self._inputs, strict=True)}
        wanted = list(self._kinds)
        try:
            return dict(zip(wanted, runtime.run(feeds, wanted), strict=True))
        except Exception as exc:  # onnxruntime's own exceptions share no base
            reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
            raise ParityError(
                f"onnxruntime cannot run the batch {batch.name!r}, which the network takes ({reason})"
            ) from exc

    def _expect_steady(self, batch: Batch, own: Answers, everything: list[Answers]) -> None:
        """Stop unless both sides answer the same when asked again."""
        for name, again in self._truth.own(batch).items():
            if not np.array_equal(own[name], again, equal_nan=again.dtype.kind == "f"):
                raise UntraceableError(
                    f"{name}: the network answers otherwise when it is asked again: expected no random "
                    "numbers and nothing kept between calls; draw in training only, and hand state in and out"
                )
        for runtime, ours in zip(self._runtimes, everything, strict=True):
            for name, again in self._answers(runtime, batch).items():
                if not np.array_equal(ours[name], again, equal_nan=again.dtype.kind == "f"):
                    raise ParityError(f"{name}: onnxruntime answers otherwise when it is asked again")

    def _wide(self, batch: Batch, own: Answers) -> Answers:
        """The truth of a batch; where rows do not mix, that of the last rows of a large one stands for all."""
        by_rows = all(answer.shape[:1] == (batch.rows,) for answer in own.values())
        if batch.small or self.coupled or not by_rows or batch.rows <= PART:
            return self._truth.wide(batch)
        return self._truth.wide(batch.part(batch.rows - PART, batch.rows))

    def _compare_sides(self, batch: Batch, own: Answers, wide: Answers, everything: list[Answers]) -> None:
        """Hold all rows of a large batch against PyTorch's, of which the truth of a few is known."""
        for figures, ours in zip(self.figures, everything, strict=True):
            for name, answer in own.items():
                blank = Figures(name, self._kinds[name], f"{batch.name}, beside PyTorch's", ordinary=False)
                figures.append(moved(blank, ours=ours[name], there=answer, truth=wide[name]))

    def _compare_rows(self, batch: Batch, wide: Answers, everything: list[Answers]) -> None:
        """Whether the first row is what it was in the first batch, whatever rows there are beside it."""
        if self._first is None:
            self._first = batch, wide, everything
            return
        first, wide_first, everything_first = self._first
        for name, kind in self._kinds.items():
            if not all(
                answers[name].shape[:1] == (of.rows,)
                for of, sides in ((batch, everything), (first, everything_first))
                for answers in sides
            ):
                if kind == "output":
                    self._mixes(f"{name} has no row for each row of the input")
                continue
            if batch.small and _apart(wide[name][0], wide_first[name][0]):
                self._mixes(f"the first row of {name} is another when its neighbours are")
            blank = Figures(name, kind, f"row 0 in {batch.name!r} and in {first.name!r}", ordinary=False)
            for figures, ours, there in zip(self.figures, everything, everything_first, strict=True):
                if not self.coupled:
                    figures.append(
                        moved(blank, ours=ours[name][0], there=there[name][0], truth=wide_first[name][0])
                    )

    def _expect_kept_apart(self, batch: Batch, own: Answers) -> None:
        """Note where a NaN in the second row reaches the first."""
        for name, answer in own.items():
            by_rows = answer.ndim and answer.shape[0] == batch.rows > 1 and answer.dtype.kind == "f"
            if by_rows and np.isnan(answer[0]).any():
                self._mixes(f"a NaN in one row reaches another in {name}")

    def _mixes(self, why: str) -> None:
        if not self.coupled:
            self.warnings.append(f"the network mixes the rows of a batch: {why}")
        self.coupled = True


def _apart(row: Array, other: Array) -> bool:
    """Whether two rows in float64 differ by more than rounding."""
    if row.shape != other.shape:
        return True
    finite = np.isfinite(row) & np.isfinite(other)
    scale = float(np.abs(row[finite]).max(initial=0.0))
    return bool(np.any(np.abs(row[finite] - other[finite]) > MIXED * scale + REST)) or not np.array_equal(
        np.isfinite(row), np.isfinite(other)
    )


def _pooled(parts: Sequence[tuple[int, float]]) -> float:
    """The root mean square over several batches, each with its cells."""
    cells = sum(count for count, _ in parts)
    return float(sum(count * rms**2 for count, rms in parts) / cells) ** 0.5 if cells else 0.0


def _last(answers: Answers, rows: int) -> Answers:
    return {name: answer[-rows:] for name, answer in answers.items()}
