"""Batches run on every side, one after another: the network, its truth, and the open model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from export.errors import ParityError, SourceError, UntraceableError
from export.parity.batches import LARGE_VALUES, ONE_NAN, REAL_ROWS, ProofBatch
from export.parity.error_stats import EPS, TensorErrors, compare_places, compare_tensors, rms
from export.parity.reference import Reference, RejectedError, TensorValues, equal_up_to_rounding, one_line
from export.parity.verdict import ErrorTable
from export.source import Array
from service.artifact import manifest
from service.artifact.runtime import Runtime

# rows of a large batch of which the truth is asked
REFERENCE_ROWS = 8
# by what share of itself an input is moved to see how much an answer hangs on its last digits
PERTURBATION = 16 * EPS


class BatchComparison:
    """Fills a tally, and notes what a reader should know: `coupled` networks mix the rows of a batch."""

    def __init__(
        self,
        truth: Reference,
        runtimes: Sequence[Runtime],
        inputs: Sequence[str],
        tally: ErrorTable,
        lossy: frozenset[str],
    ) -> None:
        self.records: list[manifest.ParityBatch] = []
        self.warnings: list[str] = []
        self.coupled = False
        self._truth = truth
        self._runtimes = runtimes
        self._inputs = inputs
        self._tally = tally
        self._lossy = lossy
        self._forgetful = False
        self._first: tuple[ProofBatch, TensorValues, list[TensorValues]] | None = None

    def run(self, batch: ProofBatch) -> None:
        """Compare one batch; one that the network itself does not take is left out."""
        try:
            own = self._truth.own(batch)
        except RejectedError as error:
            if REAL_ROWS in batch.name:
                raise SourceError(f"data: the network does not take these rows ({error})") from error
            if batch.shared:
                self.warnings.append(f"the network takes no batch of {batch.name} ({error})")
            return
        everything = [self._answers(runtime, batch) for runtime in self._runtimes]
        if self._first is None:
            self._expect_steady(batch, own, everything)
        self.records.append(batch.record())
        self._compare(batch, own, everything)
        if not batch.small and self._tally.broken(self._truth.noise) is not None:
            # only now is it worth its time to see in which layer it began
            self._compare(replace(batch, small=True), self._truth.own(replace(batch, small=True)), everything)

    def _compare(self, batch: ProofBatch, own: TensorValues, everything: list[TensorValues]) -> None:
        whole = (
            batch.small or self.coupled or not all(_has_row_axis(answer, batch) for answer in own.values())
        )
        start = 0 if whole else max(0, batch.rows - REFERENCE_ROWS)
        seen = batch.part(start, batch.rows) if start else batch
        wide = self._truth.wide(seen)
        if batch.shared:
            self._compare_rows(batch, wide, everything)
        if batch.name == ONE_NAN:
            self._expect_kept_apart(batch, own)
        if start:
            self._compare_sides(batch, own, wide, everything)
            own, *everything = (_rows_from(start, answers) for answers in (own, *everything))
        whole_numbers = any(answer.dtype.kind != "f" for answer in own.values())
        shaken = (
            self._truth.wide(seen.shaken(PERTURBATION)) if whole_numbers or batch.name == LARGE_VALUES else {}
        )
        for at, ours in enumerate(everything):
            for name, answer in own.items():
                found = compare_tensors(
                    self._blank(name, batch.name, seen.rows, batch.ordinary),
                    ours=ours[name],
                    own=answer,
                    truth=wide[name],
                    shaken=shaken.get(name)
                    if batch.name == LARGE_VALUES or answer.dtype.kind != "f"
                    else None,
                    lossy=not batch.ordinary and name in self._lossy,
                    either=self._truth.forgets,
                )
                self._tally.add(at, found)
                if batch.ordinary and not at and not found.fault and answer.dtype.kind == "f":
                    self._tally.count(name, ours[name], answer, wide[name])
                if found.forgotten:
                    self._forgets(found)

    def _compare_sides(
        self, batch: ProofBatch, own: TensorValues, wide: TensorValues, everything: list[TensorValues]
    ) -> None:
        """Hold all rows of a large batch against PyTorch's, where the truth of the last few is known."""
        for at, ours in enumerate(everything):
            for name, answer in own.items():
                blank = self._blank(name, f"{batch.name}, beside PyTorch's", batch.rows)
                found = compare_places(blank, ours=ours[name], there=answer, truth=wide[name])
                if answer.dtype.kind == "f" and not found.fault:
                    error = np.abs(answer[-len(wide[name]) :] - wide[name])
                    error = error[np.isfinite(error)]
                    found = replace(found, rms_torch=rms(error), max_torch=float(error.max(initial=0.0)))
                self._tally.add(at, found)

    def _compare_rows(self, batch: ProofBatch, wide: TensorValues, everything: list[TensorValues]) -> None:
        """Whether the first row is what it was in the first batch, whatever rows there are beside it."""
        if self._first is None:
            self._first = batch, wide, everything
            return
        first, wide_first, everything_first = self._first
        for name, kind in self._tally.kinds.items():
            ours = [
                (answers[name], there[name])
                for answers, there in zip(everything, everything_first, strict=True)
            ]
            if not all(_has_row_axis(here, batch) and _has_row_axis(there, first) for here, there in ours):
                if kind == "output":
                    self._mixes(f"{name} has no row for each row of the input")
                continue
            if batch.small and not equal_up_to_rounding(
                wide[name][0], wide_first[name][0], self._truth.noise
            ):
                self._mixes(f"the first row of {name} is another when its neighbours are")
            for at, (here, there) in enumerate(ours if not self.coupled else []):
                blank = self._blank(name, f"row 0 in {batch.name!r} and in {first.name!r}")
                self._tally.add(
                    at, compare_places(blank, ours=here[0], there=there[0], truth=wide_first[name][0])
                )

    def _expect_steady(self, batch: ProofBatch, own: TensorValues, everything: list[TensorValues]) -> None:
        """Stop unless both sides answer the same when asked again, and leave nothing behind."""
        self._truth.expect_stateless(batch)
        for name, again in self._truth.own(batch).items():
            if not _bitwise_equal(own[name], again):
                raise UntraceableError(
                    f"{name}: the network answers otherwise when it is asked again: expected no random "
                    "numbers and nothing kept between calls; draw in training only, and hand state in and out"
                )
        for runtime, ours in zip(self._runtimes, everything, strict=True):
            for name, again in self._answers(runtime, batch).items():
                if not _bitwise_equal(ours[name], again):
                    raise ParityError(f"{name}: onnxruntime answers otherwise when it is asked again")

    def _answers(self, runtime: Runtime, batch: ProofBatch) -> TensorValues:
        names = [tensor.name for tensor in runtime.inputs]
        feeds = {name: batch.arrays[own] for name, own in zip(names, self._inputs, strict=True)}
        wanted = list(self._tally.kinds)
        try:
            return dict(zip(wanted, runtime.run(feeds, wanted), strict=True))
        except Exception as exc:  # onnxruntime's own exceptions share no base
            raise ParityError(
                f"onnxruntime cannot run the batch {batch.name!r}, which the network takes: {one_line(exc)}"
            ) from exc

    def _expect_kept_apart(self, batch: ProofBatch, own: TensorValues) -> None:
        """Note where a NaN in the second row reaches the first."""
        for name, answer in own.items():
            has_rows = batch.rows > 1 and _has_row_axis(answer, batch) and answer.dtype.kind == "f"
            if has_rows and np.isnan(answer[0]).any():
                self._mixes(f"a NaN in one row reaches another in {name}")

    def _mixes(self, why: str) -> None:
        if not self.coupled:
            self.warnings.append(f"the network mixes the rows of a batch: {why}")
        self.coupled = True

    def _forgets(self, found: TensorErrors) -> None:
        if not self._forgetful:
            self.warnings.append(
                "where a number is NaN, onnxruntime forgets it in maxima and recurrent layers: in "
                f"{found.tensor} {found.forgotten} cells are numbers that the network says are NaN"
            )
        self._forgetful = True

    def _blank(self, name: str, batch: str, rows: int = 1, ordinary: bool = False) -> TensorErrors:
        # strained batches have rows that are all alike, or one that is odd
        return TensorErrors(name, self._tally.kinds[name], batch, ordinary, rows if ordinary else 1)


def _has_row_axis(answer: Array, batch: ProofBatch) -> bool:
    return answer.shape[:1] == (batch.rows,)


def _rows_from(start: int, answers: TensorValues) -> TensorValues:
    return {name: answer[start:] if answer.ndim else answer for name, answer in answers.items()}


def _bitwise_equal(one: Array, other: Array) -> bool:
    """Whether two arrays are equal to the bit, NaN for NaN."""
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
