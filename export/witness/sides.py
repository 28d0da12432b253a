"""Runs the network, its own export and the file on one batch, and judges where the file differs.

A search compares the file with the export (both in onnxruntime, which is fast). What it finds is then judged
by the network itself: natively, in float64, and with slight changes of the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from turnpike.export.network import Array, Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.onnx_reference import OnnxReference
from turnpike.export.parity.reference import PERTURBATION, Reference, TensorValues, public_outputs
from turnpike.export.parity.torch_reference import TorchReference
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.record import Witness
from turnpike.service.artifact.runtime import Runtime, open_model

# a difference counts if it is larger than this multiple of the rounding of the network and of its export
ROUNDING_FACTOR = 8.0
# and than this multiple of the farthest that slight changes of the input move the cell
MOVEMENT_FACTOR = 4.0
# slight changes that are tried: few in the search, more for the judgement
SEARCH_MOVES, JUDGED_MOVES = 2, 5
# the score of a number in place of an infinity or NaN, and of an integer or shape that differs
SPECIAL_SCORE, EXACT_SCORE = 1e3, 1e9
MAX_SCORE = 1e12


@dataclass(frozen=True)
class Score:
    """How far each row of a batch differs in public and in hidden outputs, as a multiple of rounding."""

    public: Array
    hidden: Array

    @property
    def fitness(self) -> Array:
        """For the search: public outputs count first."""
        return np.asarray(self.public + 1e-3 * self.hidden)


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
        """How far each row differs. Exceptions of either side are not translated."""
        file = self.run_file(batch)
        expected = self._guide(batch)
        moved = [self._guide(batch.perturbed(PERTURBATION, seed)) for seed in range(SEARCH_MOVES)]
        public, hidden = np.zeros(batch.rows), np.zeros(batch.rows)
        for name in self._outputs:
            movement = largest([movement_of(values[name], expected[name]) for values in moved])
            cells = excess(file[name], expected[name], movement)
            target = public if name in self._public else hidden
            np.maximum(target, by_row(cells, batch.rows), out=target)
        return Score(public, hidden)

    def judge(self, batch: ProofBatch, description: str) -> Witness | None:
        """A witness if any output of the batch differs by more than rounding explains."""
        file = self.run_file(batch)
        native = self.reference.native(batch)
        float64 = self.reference.float64(batch)
        moved = [self.reference.moved(batch, seed) for seed in range(JUDGED_MOVES)]
        export = native if self._export is None else self._run(self._export, batch, self._outputs)
        best: tuple[tuple[bool, float], Witness] | None = None
        for name in self._outputs:
            f, n, d, e = file[name], native[name], float64[name], export[name]
            if f.shape != n.shape or not f.size or n.dtype.kind not in "fiub":
                continue
            movement = largest([movement_of(values[name], n) for values in moved])
            ratios = judged(f, n, d, e, movement, batch.rows)
            if not (ratios > 1).any():
                continue
            cell = tuple(int(index) for index in np.unravel_index(int(ratios.argmax()), ratios.shape))
            key = (name in self._public, float(ratios[cell]))
            if best is None or key > best[0]:
                times = times_rounding(f, n, d, cell, batch.rows)
                witness = Witness(
                    inputs=batch.arrays,
                    rows=batch.rows,
                    description=description,
                    output=name,
                    is_hidden=name not in self._public,
                    cell=cell,
                    float64=float(d[cell]),
                    native=float(n[cell]),
                    file=float(f[cell]),
                    times=times,
                )
                best = key, witness
        return None if best is None else best[1]

    def run_file(self, batch: ProofBatch) -> TensorValues:
        """The file's values, by the names of the export's outputs."""
        values = self._run(self._file, batch, self._file_outputs)
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


def judged(file: Array, native: Array, float64: Array, export: Array, movement: Array, rows: int) -> Array:
    """The difference of each cell as a multiple of what is allowed: a value above 1 counts."""
    if native.dtype.kind != "f":
        is_sure = (native == float64) & (export == native) & (movement == 0)
        return np.where((file != native) & is_sure, EXACT_SCORE, 0.0)
    with np.errstate(all="ignore"):
        exact = float64.astype(np.float64)
        error = np.maximum(np.abs(native - exact), np.abs(export - exact))
        unit = np.spacing(np.abs(native)).astype(np.float64)
        # a cell that nothing moves may be exact by chance: there, the whole row shows how exact it is
        is_still = (movement == 0) & ~((native == 0) & (exact == 0))
        row_error, row_unit = spread(error, rows), spread(unit, rows)
        allowed = ROUNDING_FACTOR * np.where(is_still, row_error, error) + MOVEMENT_FACTOR * movement
        allowed += 2 * np.where(is_still, row_unit, unit)
        difference = np.minimum(np.abs(file - exact), np.abs(file.astype(np.float64) - native))
        ratio = np.where(np.isfinite(difference), difference / allowed, 0.0)
    # both ways of running the network agree on an infinity, or on a number, and the file has something else
    is_special = is_other_kind(file, native) & ~is_other_kind(export, native) & np.isfinite(movement)
    return np.where(is_special, 1 + 1e-6, np.where(np.isfinite(ratio), ratio, 0.0))


def times_rounding(file: Array, native: Array, float64: Array, cell: tuple[int, ...], rows: int) -> float:
    """The difference of a cell as a multiple of the network's own largest error in its row."""
    if native.dtype.kind != "f" or not all(np.isfinite(array[cell]) for array in (file, native, float64)):
        return float("inf")
    with np.errstate(all="ignore"):
        error = np.abs(native - float64.astype(np.float64))
        unit = np.spacing(np.abs(native)).astype(np.float64) / 2
        rounding = np.maximum(spread(error, rows), spread(unit, rows))
        return float(np.abs(file[cell] - float64[cell]) / rounding[cell])


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


def largest(movements: list[Array]) -> Array:
    return np.asarray(np.max(movements, axis=0))


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
