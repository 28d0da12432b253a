"""The data of a report: everything that the page shows, and the panel of the gates by layer and unit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from turnpike.export.measure.run_rows import row_axes, run_rows, spread_rows
from turnpike.export.network import Array, Rows
from turnpike.export.parity.error_stats import DECADES
from turnpike.export.precision.compare import Comparison
from turnpike.service.artifact.manifest import Gate, Manifest, Profile
from turnpike.service.artifact.runtime import Runtime

# for each tensor, the counts of onnxruntime's errors by magnitude, and of PyTorch's
Histograms = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class GatePanel:
    """Four grids of layers x units, after Figure 2 of the paper.

    A layer narrower than the widest ends in NaN, and unknown values and removed units are NaN. Gates with
    several positions or time steps are averaged. Without rows there are only biases.

    Attributes:
        layers: Names of the layers.
        biases: Biases of the gates.
        means: Mean of T over the rows.
        gates: T for the first row.
        outputs: Layer outputs for the first row.
        rows: Number of rows behind `means`.
        label: Class of the first row, if known.
    """

    layers: tuple[str, ...]
    biases: Array
    means: Array | None = None
    gates: Array | None = None
    outputs: Array | None = None
    rows: int = 0
    label: str = ""


@dataclass(frozen=True)
class PlainFile:
    """The twin without gates and levers: where it is, its bytes, and their SHA-256."""

    path: str
    size: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> PlainFile:
        content = path.read_bytes()
        return cls(str(path), len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class KeptUnits:
    """The units that a layer keeps of `whole`, in ascending order; it may keep none.

    `gate` is the name of its gate, and `layer` its number, in the network before.
    """

    gate: str
    layer: str
    units: tuple[int, ...]
    whole: int


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        manifest: The manifest of the file.
        inputs: Inputs as in `x:float32[batch,784]`.
        outputs: Public outputs in the same form.
        size: Bytes of the file.
        warnings: Warnings of the export or the compression.
        notes: Notes of the export.
        seconds: Duration of each step.
        histograms: Errors of each tensor by magnitude.
        decades: The powers of ten between which the histograms have equal bins.
        panel: The gates by layer and unit; None for a network without gates.
        comparison: How a lower precision compares with fp32.
        other_gates: A sentence about each sigmoid that multiplies something and forms no highway.
        plain: The twin without gates, if one was written.
        kept: What each layer keeps, if the file is compressed; also layers of which nothing is left.
    """

    manifest: Manifest
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size: int
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    decades: tuple[float, float] = DECADES
    panel: GatePanel | None = None
    comparison: Comparison | None = None
    other_gates: tuple[str, ...] = ()
    plain: PlainFile | None = None
    kept: tuple[KeptUnits, ...] = ()


def gate_panel(
    runtime: Runtime,
    gates: Sequence[Gate],
    biases: Mapping[str, Array],
    profile: Profile | None = None,
    rows: Rows | None = None,
    labels: Sequence[str] = (),
) -> GatePanel | None:
    """The grids of a network's gates.

    Args:
        runtime: The open model.
        gates: Its gates.
        biases: The values of the levers, by the names of their tensors.
        profile: The gates' statistics over the rows.
        rows: Rows of data, of which the first is shown.
        labels: Names of the classes.

    Returns:
        The panel, or None if there are no gates.
    """
    groups = gates_by_depth(gates)
    if not groups:
        return None
    layers = tuple(groups)
    axes = row_axes(runtime)
    dims = {tensor.name: tensor.dims for tensor in runtime.outputs}

    def grid(values: Callable[[Gate], Array]) -> Array:
        """A row for each layer: the mean of its gates' values, which are those of its time steps."""
        return _pad_rows(
            [
                np.mean(_pad_rows([_in_place(gate, values(gate), dims) for gate in group]), axis=0)
                for group in groups.values()
            ]
        )

    bias_grid = grid(lambda gate: _gate_biases(gate, biases))
    if profile is None or rows is None:
        return GatePanel(layers, bias_grid)
    unit_means = {layer.gate: np.array(layer.units) for layer in profile.layers}
    names = [name for gate in gates for name in (gate.name, gate.output) if name is not None]
    (batch,) = run_rows(runtime, spread_rows(rows, 1), names)

    def first_row(gate: Gate, name: str | None) -> Array:
        if name is None:
            return np.full(1, np.nan)
        return batch.by_unit(gate, name, axes[name]).mean((0, 1), np.float64)

    return GatePanel(
        layers,
        bias_grid,
        grid(lambda gate: unit_means[gate.name]),
        grid(lambda gate: first_row(gate, gate.name)),
        grid(lambda gate: first_row(gate, gate.output)),
        profile.rows,
        rows.label(0, labels),
    )


def gates_by_depth(gates: Sequence[Gate]) -> dict[str, list[Gate]]:
    """The gates by layer and depth (`3`, or `3.1`); time steps of one layer are together."""
    groups: dict[str, list[Gate]] = {}
    for gate in gates:
        depth = "" if gate.depth is None else f".{gate.depth}"
        groups.setdefault(f"{gate.layer}{depth}", []).append(gate)
    return groups


def _gate_biases(gate: Gate, biases: Mapping[str, Array]) -> Array:
    if not gate.levers:
        return np.full(1, np.nan)
    lever = gate.levers[0]
    return lever.sign * biases[lever.tensor].reshape(-1)[lever.start : lever.stop].astype(np.float64)


def _in_place(gate: Gate, values: Array, dims: Mapping[str, Sequence[int | str]]) -> Array:
    """The values at the numbers that units have in the original layer, with NaN for removed units.

    The layer's output has all units; `dims` are the dimensions of outputs by name.
    """
    if gate.kept is None or gate.output is None or len(values) != len(gate.kept):
        return values
    units = dims[gate.output][gate.unit_axis]
    row = np.full(units if isinstance(units, int) else max(gate.kept) + 1, np.nan)
    row[list(gate.kept)] = values
    return row


def _pad_rows(rows: Sequence[Array]) -> Array:
    """A grid of the rows, padded with NaN to the longest."""
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(grid, rows, strict=True):
        row[: len(values)] = values
    return grid
