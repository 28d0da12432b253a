"""Batches run on every side, one after another, and the figures that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from export.batches import Batch
from export.errors import ParityError, UntraceableError
from export.figures import Broken, Figures, Histogram, Kind, judge, measured, moved
from export.source import Array
from export.truth import REST, Answers, RejectedError, Truth
from service import manifest
from service.runtime import Runtime

# how far a row in float64 may move with its neighbours before the network is said to mix rows
MIXED = 1e-9
# rows that are looked at together in float64
PART = 8


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
        self._most: Answers | None = None
        self._first: tuple[Batch, Answers, Answers, list[Answers]] | None = None

    def run(self, batch: Batch) -> None:
        """Compare one batch; one that the network itself does not take is left out."""
        try:
            own = self._truth.own(batch)
        except RejectedError as error:
            if batch.shared:
                self.warnings.append(f"the network takes no batch of {batch.name} ({error})")
            return
        wide = self._wide(batch, own)
        everything = [self._answers(runtime, batch) for runtime in self._runtimes]
        if not self.records:
            self._expect_steady(batch, own, everything)
        self.records.append(batch.record())
        for at, (figures, ours) in enumerate(zip(self.figures, everything, strict=True)):
            for name in own:
                found = measured(
                    Figures(name, self._kinds[name], batch.name, batch.ordinary, batch.gain),
                    ours=ours[name],
                    own=own[name],
                    truth=wide[name],
                    lossy=not batch.ordinary and name in self._lossy,
                    histograms=self.histograms[name] if batch.ordinary and not at else None,
                )
                figures.append(found)
                if found.forgotten and not self.forgetful:
                    self.forgetful = (
                        f"where a number is NaN, onnxruntime forgets it in maxima: in {name} "
                        f"{found.forgotten} cells are numbers that the network says are NaN"
                    )
        if batch.shared:
            self._compare_rows(batch, own, wide, everything)
        if batch.name == "one NaN":
            self._expect_kept_apart(batch, own)
        if not batch.small and self.broken() is not None:
            # only now is it worth its time to see in which layer it began
            self.run(replace(batch, small=True, shared=False))

    def broken(self) -> Broken | None:
        """What does not hold of the first tensor that is not as it should be, by any provider."""
        for name in self._kinds:
            for figures in self.figures:
                found = judge([one for one in figures if one.tensor == name])
                if found is not None:
                    return found
        return None

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
        """The truth of a batch; where rows do not mix, of a large one by parts, which takes less time and room."""
        if batch.small or self.coupled or any(answer.shape[:1] != (batch.rows,) for answer in own.values()):
            return self._truth.wide(batch)
        if batch.shared and self._most is not None:
            return {name: answer[: batch.rows] for name, answer in self._most.items()}
        parts = [
            self._truth.wide(batch.part(start, min(start + PART, batch.rows)))
            for start in range(0, batch.rows, PART)
        ]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in own}
        if batch.shared:
            self._most = joined
        return joined

    def _compare_rows(
        self, batch: Batch, own: Answers, wide: Answers, everything: list[Answers]
    ) -> None:
        """Whether the first row is what it was in the first batch, whatever rows there are beside it."""
        if self._first is None:
            self._first = batch, own, wide, everything
            return
        first, own_first, wide_first, everything_first = self._first
        for name, kind in self._kinds.items():
            ours = [answers[name] for answers in (*everything, *everything_first)]
            if not all(
                answer.ndim and answer.shape[0] == of.rows
                for answer, of in zip(ours, [batch] * len(everything) + [first] * len(everything), strict=True)
            ):
                if kind == "output":
                    self._mixes(f"{name} has no row for each row of the input")
                continue
            if name in wide and _apart(wide[name][0], wide_first[name][0]):
                self._mixes(f"the first row of {name} is another when its neighbours are")
            if self.coupled or ours[0].dtype.kind != "f":
                continue
            title = f"row 0 in {batch.name!r} and in {first.name!r}"
            for figures, here, there in zip(self.figures, everything, everything_first, strict=True):
                figures.append(
                    moved(
                        Figures(name, kind, title, ordinary=False),
                        ours=(here[name][0], there[name][0]),
                        own=(own[name][0], own_first[name][0]) if name in own else None,
                        truth=wide_first[name][0],
                    )
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
