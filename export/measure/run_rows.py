"""Runs rows of data through a runtime, batch by batch, and returns outputs by row and by unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnpike.export.network import Array, Rows
from turnpike.service.artifact.limits import MAX_ROWS
from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.runtime import Runtime


@dataclass(frozen=True)
class BatchOutputs:
    """The outputs of one run, by name.

    `rows` are the rows of the data that were run. `batch_rows` is the size of the batch: it is larger than
    the number of rows if the last batch was filled up.
    """

    rows: slice
    batch_rows: int
    arrays: dict[str, Array]

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    def first_axis_rows(self, name: str) -> Array:
        """An output whose first axis is the rows, without the rows that filled up the batch."""
        array = self.arrays[name]
        # words or time steps may share the first axis with the rows
        return array[: self.count * (len(array) // self.batch_rows)]

    def by_unit(self, gate: Gate, name: str, row_axis: int) -> Array:
        """A tensor of a gate's layer as (rows, positions, units); positions are pixels, words or steps."""
        array = self.arrays[name]
        others = [axis for axis in range(array.ndim) if axis not in (row_axis, array.ndim + gate.unit_axis)]
        array = array.transpose(row_axis, *others, gate.unit_axis)
        return array.reshape(self.batch_rows, -1, array.shape[-1])[: self.count]


def run_rows(
    runtime: Runtime,
    rows: Rows,
    outputs: Sequence[str],
    overrides: Mapping[str, Array] | None = None,
    max_batch_rows: int = MAX_ROWS,
) -> Iterator[BatchOutputs]:
    """Run all rows in batches.

    Args:
        runtime: The open model.
        rows: The rows to run.
        outputs: Names of the outputs to compute, hidden ones included.
        overrides: Values for levers (gate biases), by name.
        max_batch_rows: Rows per batch. A graph with a fixed batch size uses that size instead, and its
            last batch is filled up by repeating the last row.

    Yields:
        The outputs of each batch.
    """
    fixed = runtime.inputs[0].dims[0]
    size = fixed if isinstance(fixed, int) else max_batch_rows
    for start in range(0, len(rows), size):
        batch = slice(start, min(start + size, len(rows)))
        batch_rows = size if isinstance(fixed, int) else batch.stop - start
        indices = np.minimum(np.arange(start, start + batch_rows), batch.stop - 1)
        feeds = {name: array[indices] for name, array in rows.inputs.items()}
        arrays = runtime.run({**feeds, **(overrides or {})}, outputs)
        yield BatchOutputs(batch, batch_rows, dict(zip(outputs, arrays, strict=True)))


def output_for_rows(
    runtime: Runtime, rows: Rows, output: str, overrides: Mapping[str, Array] | None = None
) -> Array:
    """One output for all rows."""
    batches = run_rows(runtime, rows, [output], overrides)
    return np.concatenate([batch.first_axis_rows(output) for batch in batches])


def row_axes(runtime: Runtime) -> dict[str, int]:
    """The axis of the rows in each output: the one named like the first dimension of the first input."""
    batch = runtime.inputs[0].dims[0]
    return {
        tensor.name: tensor.dims.index(batch) if batch in tensor.dims else 0
        for tensor in (*runtime.outputs, *runtime.hidden)
    }


def spread_rows(rows: Rows, count: int) -> Rows:
    """`count` rows spread evenly over all, always the same ones and in their order; all if there are fewer.

    A table may be sorted, so that its first rows are not like the others.
    """
    return rows if len(rows) <= count else rows.take(spread_indices(len(rows), count))


def spread_indices(total: int, count: int) -> Array:
    """The numbers of the rows that `spread_rows` takes of this total."""
    return np.arange(total) if total <= count else np.arange(count) * total // count


def rows_digest(rows: Rows) -> str:
    """SHA-256 over names, types, shapes and values of the inputs."""
    sha = hashlib.sha256()
    for name, array in rows.inputs.items():
        sha.update(f"{name} {array.dtype} {array.shape} ".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def round_figure(number: float) -> float:
    """Round to six significant digits, which is more than anyone compares."""
    return float(f"{number:.6g}")
