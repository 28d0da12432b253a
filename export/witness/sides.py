"""Runs the network, its own export and the file on one batch, and judges where the file differs.

A search compares the file with the export (both in onnxruntime, which is fast). What it finds is then judged
by the network itself: natively, in float64, and with slight changes of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from turnpike.export.errors import one_line
from turnpike.export.network import Array, Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.error_stats import EPS
from turnpike.export.parity.onnx_reference import OnnxReference
from turnpike.export.parity.reference import Reference, TensorValues, public_outputs
from turnpike.export.parity.torch_reference import TorchReference
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.record import Witness
from turnpike.service.artifact.runtime import Runtime, open_model

# a difference counts if it is larger than this multiple of the rounding of the network and of its export
ROUNDING_FACTOR = 8.0
# and than this multiple of the farthest that slight changes of the input move the cell
MOVEMENT_FACTOR = 4.0
# relative change of an input that shows how much a value depends on its last digits
PERTURBATION = 16 * EPS
# slight changes that are tried: few in the search, more for the judgement
SEARCH_MOVES, JUDGED_MOVES = 2, 5
# the search prefers rows that its own changes happen to move little
FIRST_JUDGED_SEED = 100
# the score of a number in place of an infinity or NaN, and of an integer or shape that differs
SPECIAL_SCORE, EXACT_SCORE = 10.0, 1e9
MAX_SCORE = 1e12
# the ratio of an infinity: it counts, and any number counts more
BARELY = 1 + 1e-6


class FileRefusesError(Exception):
    """The file does not run on a batch."""


@dataclass(frozen=True)
class Score:
    """How far each row of a batch differs in public and in hidden outputs, as a multiple of rounding."""

    public: Array
    hidden: Array


class Sides:
    """The network, its own export and the file."""

    def __init__(self, network: Network, graph: PreparedGraph, model: ir.Model, runtime: Runtime) -> None:
        origins = graph.gates.origins
        self.reference: Reference = (
            OnnxReference(network, graph.model, origins)
            if graph.traced is None
            else TorchReference(network, graph.traced, graph.model, origins)
        )
        # without another export, the network itself guides the search
        self._export = None if model is graph.model else open_model(graph.data, device=runtime.device)
        self._file = runtime
        self._inputs = [spec.name for spec in network.inputs]
        in_file = [value.name for value in model.graph.outputs]
        hidden = [name for name in origins if name in in_file]
        self._public = public_outputs(graph.model, origins)
        # the names in the export, and those in the file
        self._outputs = [*self._public, *hidden]
        self._file_outputs = [*public_outputs(model, origins), *hidden]
        if len(self._outputs) != len(self._file_outputs):
            raise ValueError("expected a file with as many outputs as the network")

    @property
    def has_export(self) -> bool:
        """Whether the search compares with an export of the network."""
        return self._export is not None

    def forget_export(self) -> None:
        """Compare with the network itself from now on."""
        self._export = None

    def score(self, batch: ProofBatch) -> Score:
        """How far each row differs; a FileRefusesError if only the file refuses the batch."""
        expected = self._guide(batch)
        file = self.run_file(batch)
        public, hidden = np.zeros(batch.rows), np.zeros(batch.rows)
        different = [name for name in self._outputs if not is_equal(file[name], expected[name])]
        # most batches end here
        if not different:
            return Score(public, hidden)
        moved = [self._guide(batch.perturbed(PERTURBATION, seed)) for seed in range(SEARCH_MOVES)]
        for name in different:
            movement = np.max([movement_of(values[name], expected[name]) for values in moved], axis=0)
            cells = excess(file[name], expected[name], movement)
            target = public if name in self._public else hidden
            np.maximum(target, by_row(cells, batch.rows), out=target)
        return Score(public, hidden)

    def judge(self, batch: ProofBatch, description: str) -> Witness | None:
        """A witness if any output of the batch differs by more than rounding explains."""
        native = self.reference.native(batch)
        export = {} if self._export is None else self._run(self._export, batch, self._outputs)
        try:
            file = self.run_file(batch)
        except FileRefusesError as error:
            return self._failed(batch, description, self._outputs[0], str(error))
        for name in self._outputs:
            if file[name].shape != native[name].shape:
                shapes = f"expected the shape {list(native[name].shape)}, got {list(file[name].shape)}"
                return self._failed(batch, description, name, shapes)
        cells = {
            name: Cells(file[name], array, array, export.get(name), np.zeros(array.shape), batch.rows)
            for name, array in native.items()
            if name in file and array.size and array.dtype.kind in "fiub"
        }

        # leave out the outputs that rounding explains, the cheapest runs first
        for seed in range(JUDGED_MOVES):
            cells = {name: output for name, output in cells.items() if output.ratios().max() > 1}
            if not cells:
                return None
            moved = self.reference.native(batch.perturbed(PERTURBATION, FIRST_JUDGED_SEED + seed))
            cells = {name: output.with_moved(moved[name]) for name, output in cells.items()}
        float64 = self.reference.float64(batch)
        cells = {name: replace(output, float64=float64[name]) for name, output in cells.items()}

        ratios = {name: output.ratios() for name, output in cells.items()}
        found = [name for name, array in ratios.items() if array.max() > 1]
        if not found:
            return None
        name = max(found, key=lambda name: (name in self._public, ratios[name].max()))
        cell = tuple(int(i) for i in np.unravel_index(int(ratios[name].argmax()), ratios[name].shape))
        output = cells[name]
        return Witness(
            inputs=batch.arrays,
            rows=batch.rows,
            description=description,
            output=name,
            is_hidden=name not in self._public,
            cell=cell,
            float64=float(output.float64[cell]),
            native=float(output.native[cell]),
            file=float(output.file[cell]),
            times=output.times(cell),
        )

    def _failed(self, batch: ProofBatch, description: str, name: str, failure: str) -> Witness:
        nan = float("nan")
        return Witness(
            batch.arrays,
            batch.rows,
            description,
            name,
            name not in self._public,
            (),
            nan,
            nan,
            nan,
            float("inf"),
            failure,
        )

    def run_file(self, batch: ProofBatch) -> TensorValues:
        """The file's values, by the names of the export's outputs."""
        try:
            values = self._run(self._file, batch, self._file_outputs)
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise FileRefusesError(one_line(error)) from error
        return dict(zip(self._outputs, values.values(), strict=True))

    def _guide(self, batch: ProofBatch) -> TensorValues:
        if self._export is not None:
            return self._run(self._export, batch, self._outputs)
        return self.reference.native(batch)

    def _run(self, runtime: Runtime, batch: ProofBatch, outputs: list[str]) -> TensorValues:
        names = [tensor.name for tensor in runtime.inputs]
        feeds = {name: batch.arrays[key] for name, key in zip(names, self._inputs, strict=True)}
        return dict(zip(outputs, runtime.run(feeds, outputs), strict=True))


def excess(file: Array, expected: Array, movement: Array) -> Array:
    """The difference of each cell as a multiple of what rounding may do to it."""
    if file.shape != expected.shape or file.dtype != expected.dtype:
        return np.full(expected.shape or (1,), EXACT_SCORE)
    if expected.dtype.kind != "f":
        return np.where((file != expected) & (movement == 0), EXACT_SCORE, 0.0)
    with np.errstate(all="ignore"):
        difference = np.abs(file.astype(np.float64) - expected)
        ratio = difference / (movement + np.spacing(np.abs(expected)).astype(np.float64))
    special = ~(np.isfinite(file) & np.isfinite(expected))
    ratio = np.where(special, 0.0, np.minimum(ratio, MAX_SCORE))
    return np.where(is_other_kind(file, expected) & np.isfinite(movement), SPECIAL_SCORE, ratio)


@dataclass(frozen=True)
class Cells:
    """The values of one output on all sides, to be judged.

    Attributes:
        file: What the file computes.
        native: What the network computes.
        float64: What the network computes in float64, or `native` if that is not known yet.
        export: What an export of the network computes; None if there is none.
        movement: How far slight changes of the input move the network's value.
        rows: Number of rows.
    """

    file: Array
    native: Array
    float64: Array
    export: Array | None
    movement: Array
    rows: int

    def with_moved(self, moved: Array) -> Cells:
        """After one more slight change."""
        return replace(self, movement=np.maximum(self.movement, movement_of(moved, self.native)))

    def ratios(self) -> Array:
        """The difference of each cell as a multiple of what is allowed: not explained above 1."""
        export = self.native if self.export is None else self.export
        if self.native.dtype.kind != "f":
            is_sure = (self.native == self.float64) & (export == self.native) & (self.movement == 0)
            return np.where((self.file != self.native) & is_sure, EXACT_SCORE, 0.0)
        error, unit = self._rounding()
        with np.errstate(all="ignore"):
            allowed = ROUNDING_FACTOR * error + MOVEMENT_FACTOR * self.movement + 2 * unit
            file = self.file.astype(np.float64)
            difference = np.minimum(np.abs(file - self.float64), np.abs(file - self.native))
            ratio = np.minimum(difference / allowed, MAX_SCORE)
        ratio = np.where(np.isfinite(difference) & np.isfinite(ratio), ratio, 0.0)
        if self.export is None:
            return ratio
        # the network and its export agree on an infinity, or on a number, and the file has something else
        is_special = is_other_kind(self.file, self.native) & ~is_other_kind(export, self.native)
        return np.where(is_special & np.isfinite(self.movement), BARELY, ratio)

    def times(self, cell: tuple[int, ...]) -> float:
        """The difference of a cell as a multiple of its rounding error; infinite if it has none."""
        values = [float(array[cell]) for array in (self.file, self.native, self.float64)]
        if self.native.dtype.kind != "f" or not np.isfinite(values).all():
            return float("inf")
        error, unit = self._rounding()
        with np.errstate(all="ignore"):
            return float(abs(values[0] - values[2]) / np.maximum(error[cell], unit[cell] / 2))

    def _rounding(self) -> tuple[Array, Array]:
        """The rounding error of each cell, and the spacing of its numbers: the largest in its row.

        A single cell may be exact by chance. One that is zero on all sides, and stays so, is no such chance.
        """
        export = self.native if self.export is None else self.export
        with np.errstate(all="ignore"):
            exact = self.float64.astype(np.float64)
            error = np.maximum(np.abs(self.native - exact), np.abs(export - exact))
            unit = np.spacing(np.abs(self.native)).astype(np.float64)
        is_zero = (self.native == 0) & (export == 0) & (exact == 0) & (self.movement == 0)
        return np.where(is_zero, error, spread(error, self.rows)), np.where(
            is_zero, unit, spread(unit, self.rows)
        )


def is_equal(first: Array, second: Array) -> bool:
    """Whether both hold the same numbers, with NaN equal to NaN."""
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f" == second.dtype.kind)


def is_other_kind(file: Array, expected: Array) -> Array:
    """Where one of both is NaN or an infinity and the other is not the same."""
    kinds = [
        is_special(array) for is_special in (np.isnan, np.isposinf, np.isneginf) for array in (file, expected)
    ]
    return np.asarray((kinds[0] != kinds[1]) | (kinds[2] != kinds[3]) | (kinds[4] != kinds[5]))


def movement_of(moved: Array, still: Array) -> Array:
    """How far each cell moves; infinitely if it becomes another kind of number."""
    if moved.shape != still.shape:
        return np.full(still.shape, np.inf)
    if still.dtype.kind != "f":
        return np.where(moved != still, np.inf, 0.0)
    with np.errstate(all="ignore"):
        movement = np.abs(moved.astype(np.float64) - still)
    same = ~is_other_kind(moved, still)
    return np.where(same, np.where(np.isfinite(movement), movement, 0.0), np.inf)


def by_row(cells: Array, rows: int) -> Array:
    """The largest value in each row; the largest of all for every row if there is no axis of rows."""
    if cells.shape[:1] == (rows,):
        return np.asarray(cells.reshape(rows, -1).max(axis=1, initial=0.0))
    return np.full(rows, cells.max(initial=0.0))


def spread(cells: Array, rows: int) -> Array:
    """The largest finite value of each row, in every cell of it."""
    finite = np.where(np.isfinite(cells), cells, 0.0)
    values = by_row(finite, rows)
    if cells.shape[:1] != (rows,):
        return np.full(cells.shape, values.max(initial=0.0))
    return np.broadcast_to(values.reshape(rows, *(1,) * (cells.ndim - 1)), cells.shape)
