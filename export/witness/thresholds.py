"""Rows that bring a value inside of a file to a number that it is compared with.

A comparison with a number is a threshold. Between two rows on both sides of it, bisection finds rows at the
very number, which random rows would miss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from turnpike.export.network import Array
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.onnx_reference import onnxruntime_runner
from turnpike.export.parity.reference import network_inputs
from turnpike.export.witness.candidates import Candidates, scale_rows
from turnpike.export.witness.literals import constant_of, node_literals

# operators that behave otherwise on the other side of a constant
COMPARISONS = frozenset(
    ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Clip", "Min", "Max", "Sub")
)
MAX_THRESHOLDS = 8
# cells of a value that are brought to the number
MAX_CELLS = 3
# rounds of bisection, each with as many points as a batch has rows
ROUNDS = 12
# powers of ten by which rows are multiplied to reach both sides
DECADES = (0, 1, -1, 2, 4, 8, 16, 30, 37, 38)
# relative changes of the row that was found: beside the number, the value may skip it
JITTERS = (1e-7, 1e-7, 1e-6, 1e-5)


@dataclass(frozen=True)
class Threshold:
    """A value of a file that is compared with a number."""

    value: str
    number: float

    def __str__(self) -> str:
        return f"{self.value} is near {self.number:.9g}"


def find_thresholds(model: ir.Model, trusted: ir.Model) -> list[Threshold]:
    """The comparisons with numbers that the trusted graph does not have."""
    known = {(node.op_type, number) for node in trusted.graph.all_nodes() for number in node_literals(node)}
    found = []
    for node in model.graph:
        computed = [value for value in node.inputs if value is not None and constant_of(value) is None]
        if node.op_type not in COMPARISONS or len(computed) != 1:
            continue
        # cells of the inputs get the number itself
        if computed[0].name and computed[0].producer() is not None:
            numbers = [number for number in node_literals(node) if (node.op_type, number) not in known]
            found += [Threshold(computed[0].name, number) for number in numbers]
    return found[:MAX_THRESHOLDS]


class ThresholdSearch:
    """Runs the file up to a threshold, and bisects between rows on both sides.

    Args:
        model: The graph of the file.
        trusted: A graph that computes what it should.
        inputs: The network's names of the inputs.
        candidates: Draws rows.
    """

    def __init__(self, model: ir.Model, trusted: ir.Model, inputs: list[str], candidates: Candidates) -> None:
        self._thresholds = find_thresholds(model, trusted)
        self._candidates = candidates
        self._names = dict(zip(network_inputs(model), inputs, strict=True))
        values = list(dict.fromkeys(threshold.value for threshold in self._thresholds))
        self._run_graph = onnxruntime_runner(ir.to_proto(model), values) if values else None

    def batches(self) -> Iterator[ProofBatch]:
        """Rows around each threshold that is reached. Exceptions of onnxruntime are not translated."""
        rng = np.random.default_rng(0)
        for threshold in self._thresholds:
            rows = self._scaled_rows()
            values = self._distances(threshold, rows)
            if values is None:
                continue
            both = np.flatnonzero((values < 0).any(axis=0) & (values > 0).any(axis=0))
            for cell in rng.permutation(both)[:MAX_CELLS]:
                yield from self._around(threshold, int(cell), rows, values[:, cell], rng)

    def _scaled_rows(self) -> dict[str, Array]:
        """Random rows of many magnitudes, with the same ids."""
        count = self._candidates.max_rows
        drawn = self._candidates.draw(count)
        factors = np.resize(10.0 ** np.array(DECADES), count)
        return {
            name: scale_rows(array, factors, self._candidates.axes[name])
            if array.dtype.kind == "f"
            else _repeated(array, self._candidates.axes[name])
            for name, array in drawn.items()
        }

    def _around(
        self,
        threshold: Threshold,
        cell: int,
        rows: Mapping[str, Array],
        distances: Array,
        rng: np.random.Generator,
    ) -> Iterator[ProofBatch]:
        below = int(np.where(distances < 0, distances, -np.inf).argmax())
        above = int(np.where(distances > 0, distances, np.inf).argmin())
        points = dict(rows)
        for _ in range(ROUNDS):
            points = self._between(points, below, above)
            values = self._distances(threshold, points)
            if values is None:
                return
            changes = np.flatnonzero((values[:-1, cell] < 0) & (values[1:, cell] >= 0))
            if not changes.size:
                return
            below, above = int(changes[0]), int(changes[0]) + 1
        yield self._candidates.batch(str(threshold), dict(points))
        for jitter in JITTERS:
            yield self._candidates.batch(str(threshold), self._jittered(points, above, jitter, rng))
        # and further on: a number near the largest float32 has few numbers beyond
        factors = np.linspace(0.8, 1.25, self._candidates.max_rows)
        repeated = self._jittered(points, above, 0.0, rng)
        scaled = {
            name: scale_rows(array, factors, self._candidates.axes[name])
            if array.dtype.kind == "f"
            else array
            for name, array in repeated.items()
        }
        yield self._candidates.batch(str(threshold), scaled)

    def _between(self, points: Mapping[str, Array], below: int, above: int) -> dict[str, Array]:
        """Rows on the line from one row to another one."""

        def line(name: str, array: Array) -> Array:
            axis = self._candidates.axes[name]
            if axis is None or array.dtype.kind != "f":
                return array
            first, last = (array.take([row], axis=axis).astype(np.float64) for row in (below, above))
            shape = [-1 if index == axis else 1 for index in range(array.ndim)]
            share = np.linspace(0, 1, array.shape[axis]).reshape(shape)
            return np.asarray(first * (1 - share) + last * share).astype(array.dtype)

        return {name: line(name, array) for name, array in points.items()}

    def _jittered(
        self, points: Mapping[str, Array], row: int, size: float, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Copies of a row, with every number moved by up to a share of it."""

        def moved(name: str, array: Array) -> Array:
            axis = self._candidates.axes[name]
            if axis is None or array.dtype.kind != "f":
                return array
            copies = np.repeat(array.take([row], axis=axis), array.shape[axis], axis=axis)
            return np.asarray(copies * (1 + size * rng.uniform(-1, 1, copies.shape))).astype(array.dtype)

        return {name: moved(name, array) for name, array in points.items()}

    def _distances(self, threshold: Threshold, arrays: Mapping[str, Array]) -> Array | None:
        """The value minus the number, for each row and cell; None if the value has no rows."""
        if self._run_graph is None:
            return None
        feeds = {name: arrays[source] for name, source in self._names.items()}
        value = self._run_graph(feeds, float64=False)[threshold.value]
        rows = self._candidates.max_rows
        if value.dtype.kind != "f" or value.shape[:1] != (rows,):
            return None
        # an infinity is on its side; a NaN on none
        return np.asarray(value.reshape(rows, -1).astype(np.float64) - threshold.number)


def _repeated(array: Array, axis: int | None) -> Array:
    """The first row, as often as there are rows."""
    return array if axis is None else np.repeat(array.take([0], axis=axis), array.shape[axis], axis=axis)
