"""Everything that a report shows, as one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from export.measure.run_rows import first_rows, row_axes, run_rows
from export.parity.error_stats import DECADES
from export.precision.compare import Comparison
from export.source import Rows
from service.artifact.manifest import Gate, Manifest, Profile
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class GatePanel:
    """Four grids of layers x units; a layer narrower than the widest ends in NaN, as do values unknown.

    The gates' biases, their mean over the rows, and of the first row its gates and its layers' outputs.
    Without rows there are only biases. `label` is the class of that row, where known. What a gate does in
    several places or steps is averaged.
    """

    layers: tuple[str, ...]
    biases: Array
    means: Array | None = None
    gates: Array | None = None
    outputs: Array | None = None
    rows: int = 0
    label: str = ""


def gate_panel(
    runtime: Runtime,
    gates: Sequence[Gate],
    biases: Mapping[str, Array],
    profile: Profile | None = None,
    rows: Rows | None = None,
    labels: Sequence[str] = (),
) -> GatePanel | None:
    """The grids of a network's gates; None where it has none."""
    groups = gates_by_depth(gates)
    if not groups:
        return None
    names = tuple(groups)
    bias = _pad_rows([_mean([_gate_biases(gate, biases) for gate in group]) for group in groups.values()])
    if profile is None or rows is None:
        return GatePanel(names, bias)
    units = {layer.gate: np.array(layer.units) for layer in profile.layers}
    wanted = [name for gate in gates for name in (gate.name, gate.output) if name is not None]
    axes = row_axes(runtime)
    (part,) = run_rows(runtime, first_rows(rows, 1), wanted)

    def of_row(gate: Gate, name: str | None) -> Array:
        return (
            np.full(1, np.nan)
            if name is None
            else part.by_unit(gate, name, axes[name]).mean((0, 1), np.float64)
        )

    return GatePanel(
        names,
        bias,
        _pad_rows([_mean([units[gate.name] for gate in group]) for group in groups.values()]),
        _pad_rows([_mean([of_row(gate, gate.name) for gate in group]) for group in groups.values()]),
        _pad_rows([_mean([of_row(gate, gate.output) for gate in group]) for group in groups.values()]),
        profile.rows,
        rows.label(0, labels),
    )


def gates_by_depth(gates: Sequence[Gate]) -> dict[str, list[Gate]]:
    """The gates of each layer, and of each depth within it, under what a person calls it; steps together."""
    groups: dict[str, list[Gate]] = {}
    for gate in gates:
        depth = "" if gate.depth is None else f".{gate.depth}"
        groups.setdefault(f"{gate.layer}{depth}", []).append(gate)
    return groups


def _gate_biases(gate: Gate, biases: Mapping[str, Array]) -> Array:
    if not gate.levers:
        return np.full(1, np.nan)
    own = gate.levers[0]
    return own.sign * biases[own.tensor].reshape(-1)[own.start : own.stop].astype(np.float64)


def _mean(values: Sequence[Array]) -> Array:
    """The mean of several steps of one layer."""
    return np.mean(_pad_rows(values), axis=0)


def _pad_rows(rows: Sequence[Array]) -> Array:
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(grid, rows, strict=True):
        row[: len(values)] = values
    return grid


# errors counted by magnitude: onnxruntime's and PyTorch's
Histograms = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class ReportData:
    """What an export found out. `inputs` and `outputs` are as a person writes them.

    `size` is the file's, in bytes; `seconds` are what each step took. `histograms` count each tensor's
    errors in equal bins between the powers of ten of `decades`.
    """

    manifest: Manifest
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size: int
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    decades: tuple[float, float] = DECADES
    panel: GatePanel | None = None
    comparison: Comparison | None = None
