"""The model of a job: opened and checked as the service does, and run on batches of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow

from turnpike.score.errors import ScoreError, UsageError
from turnpike.score.job.options import OutputOptions
from turnpike.score.readers.parts import RowBatch, spans, to_arrow
from turnpike.service.classification import probabilities
from turnpike.service.cli.model_argument import find_model
from turnpike.service.codec.tables.cell_warnings import NO_WARNINGS, row_warnings
from turnpike.service.codec.tables.intervals import interval_bounds
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ServiceError
from turnpike.service.inference_types import Array
from turnpike.service.registry.loader import load
from turnpike.service.telemetry.counters import RequestCounters

# rows of one run: at most 10 % slower than the fastest number for networks from 32 to 1,024 wide
MAX_RUN_ROWS = 512
# rows that are read and converted together, in several runs
MAX_BATCH_ROWS = 32 * MAX_RUN_ROWS
# bytes of the inputs of one run
MAX_RUN_BYTES = 8 << 20


class ScoringModel:
    """One version of a model, and the columns that it adds to rows."""

    def __init__(self, path: Path, options: OutputOptions, threads: int = 1) -> None:
        self.options = options
        try:
            self._model = load(find_model(path), Settings(), RequestCounters(), threads)
        except ServiceError as error:
            raise UsageError(f"--model: {error}") from error
        self.signature = self._model.signature
        self.name, self.version, self.digest = self._model.name, self._model.version, self._model.digest
        self._outputs = list(self.signature.outputs)
        self._gates = [gate.name for gate in self._model.gates] if options.gates else []
        if options.gates and not self._gates:
            raise UsageError("--gates: expected a model with gates, and it has none")
        if options.warnings and not self.signature.columns:
            raise UsageError(NO_WARNINGS)
        if self.signature.batch is None:
            raise UsageError("--model: expected a model that takes several rows, and it takes one")
        self._run_rows = self._rows_per_run()
        # rows that should be given at once
        self.batch_rows = min(MAX_BATCH_ROWS, 32 * self._run_rows)
        # whether probabilities are wanted, too
        self._has_shares = True
        # the columns of predictions that the job writes
        self.schema = self._schema()
        if unknown := [name for name in options.columns if name not in self.schema.names]:
            raise UsageError(
                f"--columns: expected some of {', '.join(self.schema.names)}, got {unknown[0]!r}"
            )
        if names := self.schema.names[:1] if options.label_only else options.columns:
            # --gates and --warnings ask for theirs
            asked = [*self._gates, *(["warnings"] if options.warnings else [])]
            names = list(dict.fromkeys([*names, *asked]))
            self.schema = pyarrow.schema([self.schema.field(name) for name in names])
            self._has_shares = not {"label"} >= set(names) - set(asked)

    def _rows_per_run(self) -> int:
        """One row, if the result of a row may depend on the others."""
        manifest = self._model.manifest
        names = {*self._outputs, *self._gates}
        if (manifest is not None and manifest.batch_coupled) or not names <= self.signature.splittable:
            return 1
        sizes = [dim for tensor in self.signature.inputs.values() for dim in tensor.dims[1:]]
        row_bytes = 8 * int(np.prod([dim for dim in sizes if isinstance(dim, int)] or [1]))
        return max(1, min(MAX_RUN_ROWS, MAX_RUN_BYTES // row_bytes))

    def _schema(self) -> pyarrow.Schema:
        """All columns that the model can add."""
        feeds = {
            tensor.name: np.zeros(
                (1, *(dim if isinstance(dim, int) else 1 for dim in tensor.dims[1:])), tensor.dtype
            )
            for tensor in self.signature.inputs.values()
        }
        return pyarrow.RecordBatch.from_pydict(self._columns(feeds, 1)).schema

    def score(self, batch: RowBatch) -> dict[str, pyarrow.Array]:
        """The columns of `schema` for those rows that can be scored."""
        rows = batch.rows - len(batch.bad)
        columns = self._columns(batch.feeds, rows) if rows else _no_rows(self.schema)
        return {name: columns[name] for name in self.schema.names}

    def _columns(self, feeds: dict[str, Array], rows: int) -> dict[str, pyarrow.Array]:
        arrays = self._run(feeds, rows)
        columns: dict[str, pyarrow.Array] = {}
        for index, (name, array) in enumerate(zip(self._outputs, arrays, strict=False)):
            labels, distribution = self._model.labels, self._model.distribution
            if index == 0 and labels and array.shape[1:] == (len(labels),) and distribution is not None:
                columns |= _class_columns(array, labels, distribution=distribution, shares=self._has_shares)
            else:
                is_number = index == 0 and self._model.predicts_number and array.size == rows
                columns["value" if is_number else name] = to_arrow(array.reshape(-1) if is_number else array)
                if index == 0 and (interval := self._model.interval) is not None and array.size == rows:
                    columns["low"], columns["high"] = map(pyarrow.array, interval_bounds(array, interval))
        for name, array in zip(self._gates, arrays[len(self._outputs) :], strict=True):
            columns[name] = pyarrow.array(array.reshape(rows, -1).mean(1, dtype=np.float32))
        if self.options.warnings:
            (numbers,) = feeds.values()
            columns["warnings"] = pyarrow.array(row_warnings(numbers, self.signature), pyarrow.string())
        return columns

    def _run(self, inputs: dict[str, Array], rows: int) -> list[Array]:
        """The outputs and gates, in runs of a suitable length."""
        names = [*self._outputs, *self._gates]
        runs = []
        for start, stop in spans(rows, self._run_rows):
            feeds = {name: array[start:stop] for name, array in inputs.items()}
            try:
                runs.append(self._model.runtime.run(feeds, names))
            except ServiceError as error:
                raise ScoreError(str(error)) from error
        return [np.concatenate(arrays) for arrays in zip(*runs, strict=True)]


def _class_columns(
    array: Array, labels: tuple[str, ...], *, distribution: bool, shares: bool
) -> dict[str, pyarrow.Array]:
    """The best class, its probability, and the probability of each class."""
    label = pyarrow.DictionaryArray.from_arrays(array.argmax(1).astype(np.int32), list(labels))
    if not shares:
        return {"label": label}
    # a row for each class: operations on long rows are faster
    by_class = probabilities(np.ascontiguousarray(array.T), distribution=distribution, axis=0).astype(
        np.float32
    )
    columns = {"label": label, "probability": pyarrow.array(by_class.max(0))}
    return columns | {f"p_{name}": pyarrow.array(share) for name, share in zip(labels, by_class, strict=True)}


def _no_rows(schema: pyarrow.Schema) -> dict[str, pyarrow.Array]:
    return {field.name: pyarrow.array([], field.type) for field in schema}
