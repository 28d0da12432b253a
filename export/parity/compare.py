"""Runs each proof batch on every side and compares: network, float64 reference, open models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.errors import ParityError, SourceOptionError, UntraceableError, one_line
from turnpike.export.network import Array
from turnpike.export.parity.batches import ONE_NAN, REAL_ROWS, ProofBatch
from turnpike.export.parity.error_stats import TensorErrors, compare_tensors
from turnpike.export.parity.reference import Reference, RejectedError, TensorValues, equal_up_to_rounding
from turnpike.export.parity.verdict import ErrorTable
from turnpike.service.artifact import proof_records
from turnpike.service.artifact.runtime import Runtime

# Rows at the end of a large batch that the float64 reference computes if the graph is decided. All of them
# take long, and are only needed where rows are all that shows what the graph computes.
REFERENCE_ROWS = 8


class BatchComparison:
    """Compares batch after batch and fills the error table.

    Attributes:
        records: The manifest's records of the batches that were compared.
        warnings: What a user should know about the network.
        skipped: The names of batches that the network does not accept, with its reasons. Batches of other
            row counts are in the warnings.
        first_rejection: The network's reason for the first batch that it does not accept.
        batch_coupled: Whether the network mixes the rows of a batch.
    """

    def __init__(
        self,
        reference: Reference,
        runtimes: Sequence[Runtime],
        inputs: Sequence[str],
        table: ErrorTable,
        nan_dropping: frozenset[str],
        decided: bool,
    ) -> None:
        """Args:
        reference: Computes the network's values.
        runtimes: The open models.
        inputs: The network's input names.
        table: Receives the errors.
        nan_dropping: The values that may lose a NaN.
        decided: Whether the graph is decided to be the network's function.
        """
        self.records: list[proof_records.ParityBatch] = []
        self.warnings: list[str] = []
        self.skipped: dict[str, str] = {}
        self.first_rejection = ""
        self.batch_coupled = False
        self._reference = reference
        self._runtimes = runtimes
        self._inputs = inputs
        self._table = table
        self._nan_dropping = nan_dropping
        self._decided = decided
        self._warned_of_dropped_nans = False
        # the first shared batch, and its float64 values
        self._first: tuple[ProofBatch, TensorValues] | None = None

    def run(self, batch: ProofBatch) -> None:
        """Compare one batch; a batch that the network itself does not accept is skipped."""
        try:
            native = self._reference.native(batch)
        except RejectedError as error:
            self.first_rejection = self.first_rejection or str(error)
            if REAL_ROWS in batch.name:
                raise SourceOptionError(
                    f"--data: the network does not accept these rows ({error})"
                ) from error
            if batch.shared:
                self.warnings.append(f"the network does not accept the batch {batch.name!r} ({error})")
            else:
                self.skipped[batch.name] = str(error)
            return
        ort_values = [self._run_model(runtime, batch) for runtime in self._runtimes]
        if not batch.compared:
            for values in (native, *ort_values):
                self._check_nan_stays_in_row(batch, values)
            return
        if self._first is None:
            self._expect_repeatable(batch, native, ort_values)
        self.records.append(batch.record())
        self._compare(batch, native, ort_values)

    def mark_coupled(self, reason: str) -> None:
        """Note that the network mixes the rows of a batch, and warn with the reason."""
        if not self.batch_coupled:
            self.warnings.append(f"the network mixes the rows of a batch: {reason}")
        self.batch_coupled = True

    def _compare(self, batch: ProofBatch, native: TensorValues, ort_values: list[TensorValues]) -> None:
        # compute the float64 reference: for the whole batch, or for the last rows of a large one
        compare_all_rows = (
            not self._decided
            or batch.compare_layers
            or self.batch_coupled
            or not all(_has_row_axis(array, batch) for array in native.values())
        )
        start = 0 if compare_all_rows else max(0, batch.rows - REFERENCE_ROWS)
        part = batch.slice_rows(start, batch.rows) if start else batch
        float64 = self._reference.float64(part)
        if batch.shared:
            self._check_rows_alone(batch, native, float64)
        if batch.name == ONE_NAN:
            self._check_nan_stays_in_row(batch, native)
        native, *ort_values = (_rows_from(start, values) for values in (native, *ort_values))
        self._compare_with_float64(part, native, float64, ort_values)

    def _compare_with_float64(
        self,
        batch: ProofBatch,
        native: TensorValues,
        float64: TensorValues,
        ort_values: list[TensorValues],
    ) -> None:
        """Compare every tensor with the reference, row by row if the rows are judged alone."""
        by_row = not self.batch_coupled and all(_has_row_axis(array, batch) for array in native.values())
        parts = (
            [(name, slice(row, row + 1)) for row, name in enumerate(batch.row_names)]
            if by_row and batch.row_names
            else [(batch.name, slice(None))]
        )
        for provider, ort in enumerate(ort_values):
            for name, array in native.items():
                for part_name, rows in parts:
                    errors = compare_tensors(
                        TensorErrors(name, self._table.kinds[name], part_name, batch.ordinary),
                        ort=_take(ort[name], rows),
                        native=_take(array, rows),
                        float64=_take(float64[name], rows),
                        may_drop_nan=self._decided if batch.ordinary else name in self._nan_dropping,
                        reference_may_drop_nan=self._reference.may_drop_nan,
                    )
                    self._table.add(provider, errors)
                    if errors.dropped_nans:
                        self._warn_of_dropped_nans(errors)
                if batch.ordinary and not provider and not errors.mismatch and array.dtype.kind == "f":
                    self._table.count(name, ort[name], array, float64[name])

    def _check_rows_alone(self, batch: ProofBatch, native: TensorValues, float64: TensorValues) -> None:
        """Note that the network mixes rows if the first row changes with its neighbors."""
        if self._first is None:
            self._first = batch, float64
            return
        first_batch, first_values = self._first
        for name, array in native.items():
            if not (_has_row_axis(array, batch) and _has_row_axis(first_values[name], first_batch)):
                if self._table.kinds[name] == "output":
                    self.mark_coupled(f"{name} does not have one row for each row of the input")
            elif batch.compare_layers and not equal_up_to_rounding(
                float64[name][0], first_values[name][0], self._reference.noise
            ):
                self.mark_coupled(f"the first row of {name} changes with the rows beside it")

    def _expect_repeatable(
        self, batch: ProofBatch, native: TensorValues, ort_values: list[TensorValues]
    ) -> None:
        """Raise unless both sides give the same values for the same batch again, and keep no state."""
        self._reference.expect_stateless(batch)
        for name, repeated in self._reference.native(batch).items():
            if not _bitwise_equal(native[name], repeated):
                raise UntraceableError(
                    f"{name}: the network gives another answer when it is run again: expected no random "
                    "numbers and no state between calls; draw random numbers in training only, and pass "
                    "state in and out"
                )
        for runtime, ort in zip(self._runtimes, ort_values, strict=True):
            for name, repeated in self._run_model(runtime, batch).items():
                if not _bitwise_equal(ort[name], repeated):
                    raise ParityError(f"{name}: onnxruntime gives another answer when it is run again")

    def _run_model(self, runtime: Runtime, batch: ProofBatch) -> TensorValues:
        names = [tensor.name for tensor in runtime.inputs]
        feeds = {name: batch.arrays[key] for name, key in zip(names, self._inputs, strict=True)}
        outputs = list(self._table.kinds)
        try:
            return dict(zip(outputs, runtime.run(feeds, outputs), strict=True))
        except Exception as exc:  # onnxruntime's exceptions share no base class
            raise ParityError(
                f"onnxruntime cannot run the batch {batch.name!r}, which the network accepts: {one_line(exc)}"
            ) from exc

    def _check_nan_stays_in_row(self, batch: ProofBatch, native: TensorValues) -> None:
        """Note that the network mixes rows if a NaN in the second row reaches the first."""
        for name, array in native.items():
            has_rows = batch.rows > 1 and _has_row_axis(array, batch) and array.dtype.kind == "f"
            if has_rows and np.isnan(array[0]).any():
                self.mark_coupled(f"a NaN in one row reaches another row of {name}")

    def _warn_of_dropped_nans(self, errors: TensorErrors) -> None:
        if not self._warned_of_dropped_nans:
            self.warnings.append(
                "onnxruntime loses NaN in maxima, sigmoids and recurrent layers: in "
                f"{errors.tensor} it gives numbers in {errors.dropped_nans} cells where the network gives "
                "NaN (--input-range LOW:HIGH leaves NaN out of the proof)"
            )
        self._warned_of_dropped_nans = True


def _has_row_axis(array: Array, batch: ProofBatch) -> bool:
    return array.shape[:1] == (batch.rows,)


def _rows_from(start: int, values: TensorValues) -> TensorValues:
    return {name: array[start:] if array.ndim else array for name, array in values.items()}


def _take(array: Array, rows: slice) -> Array:
    return array[rows] if array.ndim else array


def _bitwise_equal(first: Array, second: Array) -> bool:
    """Whether two arrays hold the same numbers exactly, with NaN equal to NaN."""
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
