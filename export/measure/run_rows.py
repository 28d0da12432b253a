"""Rows of data through a runtime, batch by batch, and what came out by row and by unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from export.source import Rows
from service.artifact.limits import MAX_ROWS
from service.artifact.manifest import Gate
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class BatchOutputs:
    """What one run gave: an array for each name, for `rows` of the data out of `fed`."""

    rows: slice
    fed: int
    arrays: dict[str, Array]

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    def of_rows(self, name: str) -> Array:
        """An output whose first axis is the rows'."""
        array = self.arrays[name]
        # words or steps may share that axis with the rows
        return array[: self.count * (len(array) // self.fed)]

    def by_unit(self, gate: Gate, name: str, row_axis: int) -> Array:
        """A tensor of a gate's layer as (rows, places, units); places are pixels, words or steps."""
        array = self.arrays[name]
        rest = [axis for axis in range(array.ndim) if axis not in (row_axis, array.ndim + gate.unit_axis)]
        array = array.transpose(row_axis, *rest, gate.unit_axis)
        return array.reshape(self.fed, -1, array.shape[-1])[: self.count]


def run_rows(
    runtime: Runtime,
    rows: Rows,
    outputs: Sequence[str],
    overrides: Mapping[str, Array] | None = None,
    at_once: int = MAX_ROWS,
) -> Iterator[BatchOutputs]:
    """Run all rows; a graph that takes only one number of rows gets the last batch filled up with repeats."""
    fixed = runtime.inputs[0].dims[0]
    size = fixed if isinstance(fixed, int) else at_once
    for start in range(0, len(rows), size):
        taken = slice(start, min(start + size, len(rows)))
        fed = size if isinstance(fixed, int) else taken.stop - start
        at = np.minimum(np.arange(start, start + fed), taken.stop - 1)
        feeds = {name: array[at] for name, array in rows.inputs.items()}
        arrays = runtime.run({**feeds, **(overrides or {})}, outputs)
        yield BatchOutputs(taken, fed, dict(zip(outputs, arrays, strict=True)))


def output_for_rows(
    runtime: Runtime, rows: Rows, output: str, overrides: Mapping[str, Array] | None = None
) -> Array:
    """One output for all rows."""
    return np.concatenate([part.of_rows(output) for part in run_rows(runtime, rows, [output], overrides)])


def row_axes(runtime: Runtime) -> dict[str, int]:
    """The axis of each output along which its rows lie: the one that is called as the inputs' first is."""
    batch = runtime.inputs[0].dims[0]
    return {
        tensor.name: tensor.dims.index(batch) if batch in tensor.dims else 0
        for tensor in (*runtime.outputs, *runtime.hidden)
    }


def first_rows(rows: Rows, count: int) -> Rows:
    """The first rows, or all where there are fewer."""
    classes = None if rows.classes is None else rows.classes[:count]
    return Rows({name: array[:count] for name, array in rows.inputs.items()}, classes)


def rows_digest(rows: Rows) -> str:
    """What tells these rows from others: names, types, shapes and values of the inputs."""
    sha = hashlib.sha256()
    for name, array in rows.inputs.items():
        sha.update(f"{name} {array.dtype} {array.shape} ".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def round_figure(number: float) -> float:
    """A figure for the manifest: six digits are more than anyone compares."""
    return float(f"{number:.6g}")
