"""Runs each proof batch on every side and compares: network, float64 reference, open models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from export.errors import ParityError, SourceError, UntraceableError
from export.parity.batches import LARGE_VALUES, ONE_NAN, REAL_ROWS, ProofBatch
from export.parity.error_stats import EPS, TensorErrors, compare_places, compare_tensors, rms
from export.parity.reference import (
    Reference,
    RejectedError,
    TensorValues,
    equal_up_to_rounding,
    one_line,
)
from export.parity.verdict import ErrorTable
from export.source import Array
from service.artifact import manifest
from service.artifact.runtime import Runtime

# rows at the end of a large batch that the float64 reference computes; computing all would be slow
REFERENCE_ROWS = 8
# relative change of an input that shows how much a value depends on its last digits
PERTURBATION = 16 * EPS


class BatchComparison:
    """Compares batch after batch and fills the error table.

    Attributes:
        records: The manifest's records of the batches that were compared.
        warnings: What a user should know about the network.
        batch_coupled: Whether the network mixes the rows of a batch.
    """

    def __init__(
        self,
        reference: Reference,
        runtimes: Sequence[Runtime],
        inputs: Sequence[str],
        table: ErrorTable,
        nan_dropping: frozenset[str],
    ) -> None:
        """`inputs` are the source's input names; `nan_dropping` the values that may lose a NaN."""
        self.records: list[manifest.ParityBatch] = []
        self.warnings: list[str] = []
        self.batch_coupled = False
        self._reference = reference
        self._runtimes = runtimes
        self._inputs = inputs
        self._table = table
        self._nan_dropping = nan_dropping
        self._warned_of_dropped_nans = False
        # the first shared batch, its float64 values, and the values of each runtime
        self._first: tuple[ProofBatch, TensorValues, list[TensorValues]] | None = None

    def run(self, batch: ProofBatch) -> None:
        """Compare one batch; a batch that the network itself does not accept is skipped."""
        try:
            native = self._reference.native(batch)
        except RejectedError as error:
            if REAL_ROWS in batch.name:
                raise SourceError(f"data: the network does not accept these rows ({error})") from error
            if batch.shared:
                self.warnings.append(f"the network does not accept the batch {batch.name!r} ({error})")
            return
        ort_values = [self._run_model(runtime, batch) for runtime in self._runtimes]
        if self._first is None:
            self._expect_repeatable(batch, native, ort_values)
        self.records.append(batch.record())
        self._compare(batch, native, ort_values)
        if not batch.compare_layers and self._table.first_failure(self._reference.noise) is not None:
            # layers are slow to compute on a large batch; now they show where the failure began
            with_layers = replace(batch, compare_layers=True)
            self._compare(with_layers, self._reference.native(with_layers), ort_values)

    def _compare(self, batch: ProofBatch, native: TensorValues, ort_values: list[TensorValues]) -> None:
        # compute the float64 reference: for the whole batch, or for the last rows of a large one
        compare_all_rows = (
            batch.compare_layers
            or self.batch_coupled
            or not all(_has_row_axis(array, batch) for array in native.values())
        )
        start = 0 if compare_all_rows else max(0, batch.rows - REFERENCE_ROWS)
        part = batch.slice_rows(start, batch.rows) if start else batch
        float64 = self._reference.float64(part)

        # compare rows with each other
        if batch.shared:
            self._compare_first_rows(batch, float64, ort_values)
        if batch.name == ONE_NAN:
            self._check_nan_stays_in_row(batch, native)
        if start:
            self._compare_with_native(batch, native, float64, ort_values)
            native, *ort_values = (_rows_from(start, values) for values in (native, *ort_values))

        # where ties between integers and switching gates are possible, see how much rounding decides
        has_integers = any(array.dtype.kind != "f" for array in native.values())
        perturbed = (
            self._reference.float64(part.perturbed(PERTURBATION))
            if has_integers or batch.name == LARGE_VALUES
            else {}
        )

        # compare every tensor with the reference
        for provider, ort in enumerate(ort_values):
            for name, array in native.items():
                is_float = array.dtype.kind == "f"
                errors = compare_tensors(
                    self._blank(name, batch.name, part.rows, batch.ordinary),
                    ort=ort[name],
                    native=array,
                    float64=float64[name],
                    perturbed=perturbed.get(name) if batch.name == LARGE_VALUES or not is_float else None,
                    may_drop_nan=not batch.ordinary and name in self._nan_dropping,
                    reference_may_drop_nan=self._reference.may_drop_nan,
                )
                self._table.add(provider, errors)
                if batch.ordinary and not provider and not errors.mismatch and is_float:
                    self._table.count(name, ort[name], array, float64[name])
                if errors.dropped_nans:
                    self._warn_of_dropped_nans(errors)

    def _compare_with_native(
        self,
        batch: ProofBatch,
        native: TensorValues,
        float64: TensorValues,
        ort_values: list[TensorValues],
    ) -> None:
        """Compare all rows of a large batch with PyTorch's, whose error is known from the last rows."""
        for provider, ort in enumerate(ort_values):
            for name, array in native.items():
                blank = self._blank(name, f"{batch.name}, compared with PyTorch", batch.rows)
                errors = compare_places(blank, ort=ort[name], other=array, float64=float64[name])
                if array.dtype.kind == "f" and not errors.mismatch:
                    torch_errors = np.abs(array[-len(float64[name]) :] - float64[name])
                    torch_errors = torch_errors[np.isfinite(torch_errors)]
                    errors = replace(
                        errors, rms_torch=rms(torch_errors), max_torch=float(torch_errors.max(initial=0.0))
                    )
                self._table.add(provider, errors)

    def _compare_first_rows(
        self, batch: ProofBatch, float64: TensorValues, ort_values: list[TensorValues]
    ) -> None:
        """Check that the first row gives the same values as in the first batch, whatever its neighbors."""
        if self._first is None:
            self._first = batch, float64, ort_values
            return
        first_batch, first_float64, first_ort_values = self._first
        for name, kind in self._table.kinds.items():
            pairs = [
                (values[name], first_values[name])
                for values, first_values in zip(ort_values, first_ort_values, strict=True)
            ]
            if not all(
                _has_row_axis(here, batch) and _has_row_axis(there, first_batch) for here, there in pairs
            ):
                if kind == "output":
                    self._mark_coupled(f"{name} does not have one row for each row of the input")
                continue
            if batch.compare_layers and not equal_up_to_rounding(
                float64[name][0], first_float64[name][0], self._reference.noise
            ):
                self._mark_coupled(f"the first row of {name} changes with the rows beside it")
            for provider, (here, there) in enumerate(pairs if not self.batch_coupled else []):
                blank = self._blank(name, f"row 0 in {batch.name!r} and in {first_batch.name!r}")
                errors = compare_places(blank, ort=here[0], other=there[0], float64=first_float64[name][0])
                self._table.add(provider, errors)

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
        """Mark the network as batch-coupled if a NaN in the second row reaches the first."""
        for name, array in native.items():
            has_rows = batch.rows > 1 and _has_row_axis(array, batch) and array.dtype.kind == "f"
            if has_rows and np.isnan(array[0]).any():
                self._mark_coupled(f"a NaN in one row reaches another row of {name}")

    def _mark_coupled(self, reason: str) -> None:
        if not self.batch_coupled:
            self.warnings.append(f"the network mixes the rows of a batch: {reason}")
        self.batch_coupled = True

    def _warn_of_dropped_nans(self, errors: TensorErrors) -> None:
        if not self._warned_of_dropped_nans:
            self.warnings.append(
                "onnxruntime loses NaN in maxima and recurrent layers: in "
                f"{errors.tensor} it gives numbers in {errors.dropped_nans} cells where the network gives NaN"
            )
        self._warned_of_dropped_nans = True

    def _blank(self, name: str, batch: str, rows: int = 1, ordinary: bool = False) -> TensorErrors:
        # the rows of a stress batch are all alike, or only one is special: they count as one
        return TensorErrors(name, self._table.kinds[name], batch, ordinary, rows if ordinary else 1)


def _has_row_axis(array: Array, batch: ProofBatch) -> bool:
    return array.shape[:1] == (batch.rows,)


def _rows_from(start: int, values: TensorValues) -> TensorValues:
    return {name: array[start:] if array.ndim else array for name, array in values.items()}


def _bitwise_equal(first: Array, second: Array) -> bool:
    """Whether two arrays hold the same numbers exactly, with NaN equal to NaN."""
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
