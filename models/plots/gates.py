"""What the gates of a network do, by layer and unit: Figure 2 of "Training Very Deep Networks"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from models.data.dataset import Dataset
from models.layers.gate import DenseGate, GatedJoin, GateRecording, record_gates
from models.networks.base import Net
from models.plots import style
from models.plots.style import FAINT, GREY, INK
from models.training.checkpoint import TrainingRecord
from models.training.evaluate import to_network_input

MAX_ROWS = 1000  # of the test rows, that the mean is taken over
BATCH_ROWS = 50  # rows: deep convolutional nets keep large maps while they are watched
MAX_DPI = 400
OUTLIER_PERCENT = 0.5  # percent at either end of a colour scale that may go beyond it

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class GateGrids:
    """Layers x units each; a layer narrower than the widest ends in NaN."""

    biases: Array
    mean_gates: Array
    gates: Array
    outputs: Array
    averaged: bool  # whether a gate stands in several places for one row


def gate_figure(net: Net, record: TrainingRecord, data: Dataset) -> Figure | None:
    """Four panels: the gates' biases, their mean over test rows, and one row's gates and outputs."""
    rows = data.test.x[:MAX_ROWS]
    grids = gate_grids(net, rows)
    if grids is None:
        return None
    layers, units = grids.biases.shape
    width = min(4.4, max(2.7, 2.3 + units / 150))
    # a pixel or more for each unit, or some would not be seen
    dpi = min(MAX_DPI, max(style.DPI, units / (0.85 * width)))
    figure = style.new_figure(4 * width, min(8.4, 2.5 + 0.13 * max(6, layers)), dpi=dpi)
    label = style.shorten(data.labels[int(data.test.y[0])], 20)
    below = _averaged([part for part in net.modules() if isinstance(part, GatedJoin)], data.kind)
    style.set_title(
        figure,
        f"{record.preset} on {record.data['name']}: transform gates",
        below if grids.averaged else "",
    )
    panels = figure.subplots(1, 4, sharey=True)
    # biases stay near where they all began: what training made of them shows around their middle
    for axes, name, grid, middle in (
        (panels[0], f"biases ({_range(grids.biases)})", grids.biases, float(np.nanmedian(grids.biases))),
        (panels[1], f"mean over {len(rows):,} test rows", grids.mean_gates, None),
        (panels[2], f"gates of one row, label {label}", grids.gates, None),
        (panels[3], "that row's block outputs", grids.outputs, 0.0),
    ):
        _panel(figure, axes, name, grid, middle=middle)
    panels[0].set_ylabel("layer (input at 1)", fontsize=9.5)
    return figure


def gate_grids(net: Net, rows: Tensor) -> GateGrids | None:
    """The four grids, the one row being the first; None where the network has no transform gates.

    What a gate does in several places (of an image, of time) is averaged over them.
    """
    joins = {name: part for name, part in net.named_modules() if isinstance(part, GatedJoin)}
    if not joins:
        return None
    mean, _ = _means(net, joins, rows)
    one, outputs = _means(net, joins, rows[:1])
    return GateGrids(
        biases=_padded([_bias(join) for join in joins.values()]),
        mean_gates=_padded([layer.value for layer in mean]),
        gates=_padded([layer.value for layer in one]),
        outputs=_padded([layer.value for layer in outputs]),
        averaged=any(layer.count > len(rows) for layer in mean),
    )


def _means(net: Net, joins: dict[str, GatedJoin], rows: Tensor) -> tuple[list[_Mean], list[_Mean]]:
    """Each layer's gates and outputs, unit by unit, averaged over all that goes through the layer."""
    gate_figure = {name: _Mean(join) for name, join in joins.items()}
    outputs = {name: _Mean(join) for name, join in joins.items()}
    was_training = net.training
    net.eval()
    with torch.inference_mode():
        for batch in _batches(net, rows):
            with record_gates(net) as recordings:
                net(to_network_input(net, batch.to(net.shift.device)))
            for name, recording in recordings.items():
                _add(recording, gate_figure[name], outputs[name])
    net.train(was_training)
    return list(gate_figure.values()), list(outputs.values())


def _add(recording: GateRecording, gate_figure: _Mean, outputs: _Mean) -> None:
    for gate, output in zip(recording.transform_gates, recording.outputs, strict=True):
        gate_figure.add(gate)
        outputs.add(output)


def _bias(join: GatedJoin) -> Tensor:
    bias = join.gate.bias
    return torch.zeros(len(join.gate.weight)) if bias is None else bias.detach().float().cpu()


class _Mean:
    """A running mean over every axis but the units'."""

    def __init__(self, join: GatedJoin) -> None:
        self.axis = -1 if isinstance(join.gate, DenseGate) else 1
        self.total = torch.zeros(())
        self.count = 0

    def add(self, values: Tensor) -> None:
        by_unit = values.double().movedim(self.axis, -1).flatten(0, -2).cpu()
        self.total = self.total + by_unit.sum(0)
        self.count += len(by_unit)

    @property
    def value(self) -> Tensor:
        return self.total / self.count


def _batches(net: Net, rows: Tensor) -> Iterator[Tensor]:
    """The rows in small batches; of texts that may have any number of words, no words that are padding."""
    if not (net.reads_ids and 0 in net.free_axes):
        yield from torch.split(rows, BATCH_ROWS)
        return
    real = (rows != 0).flatten(2).any(2)
    places = torch.arange(1, rows.shape[1] + 1)
    lengths = (real * places).amax(1).clamp(min=1)
    for length in sorted(set(lengths.tolist())):
        yield from torch.split(rows[lengths == length, :length], BATCH_ROWS)


def _padded(layers: list[Tensor]) -> Array:
    grid = np.full((len(layers), max(map(len, layers))), np.nan)
    for row, values in zip(grid, layers, strict=True):
        row[: len(values)] = values.numpy()
    return grid


def _averaged(joins: list[GatedJoin], kind: str) -> str:
    """What a gate that stands in several places was averaged over."""
    if not all(isinstance(join.gate, DenseGate) for join in joins):
        return "averaged over the places of each feature map"
    return f"averaged over the {'words of a text' if kind == 'text' else 'steps of time'}"


def _panel(figure: Figure, axes: Axes, name: str, grid: Array, *, middle: float | None) -> None:
    layers, units = grid.shape
    norm, beyond = (Normalize(0, 1), "neither") if middle is None else _scale(grid, middle)
    image = axes.imshow(
        np.ma.masked_invalid(grid),
        cmap=_colours("viridis" if middle is None else "RdBu_r"),
        norm=norm,
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, units + 0.5, layers + 0.5, 0.5),
    )
    axes.set_title(name, fontsize=10.5, color=INK, parse_math=False)
    axes.set_xlabel("unit", fontsize=9.5)
    axes.set_xticks(_ticks(units, 5))
    axes.set_yticks(_ticks(layers, 10))
    axes.tick_params(labelsize=8.5, color=GREY)
    axes.spines[:].set_color(GREY)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=28, pad=0.02, extend=beyond)
    bar.ax.tick_params(labelsize=8.5, color=GREY)
    bar.outline.set_edgecolor(GREY)


def _range(grid: Array) -> str:
    return f"{np.nanmin(grid):.3g} to {np.nanmax(grid):.3g}".replace("-", "\N{MINUS SIGN}")


def _scale(grid: Array, middle: float) -> tuple[Normalize, str]:
    """A scale that is symmetric around its middle, and at which ends a few outliers go beyond it."""
    values = grid[np.isfinite(grid)] - middle
    low, high = np.percentile(values, (OUTLIER_PERCENT, 100 - OUTLIER_PERCENT)) if len(values) else (0.0, 0.0)
    bound = float(max(-low, high)) or float(np.abs(values).max(initial=0.0)) or 1.0
    below, above = bool((values < -bound).any()), bool((values > bound).any())
    ends = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}
    return Normalize(middle - bound, middle + bound), ends[below, above]


def _colours(name: str) -> Colormap:
    """A perceptual map of colours in which blanks are light grey."""
    return colormaps[name].with_extremes(bad=FAINT)


def _ticks(count: int, most: int) -> list[int]:
    """1, a few round numbers, and the last."""
    if count <= most:
        return list(range(1, count + 1))
    step = next(
        step
        for power in range(6)
        for step in (5 * 10**power, 10 ** (power + 1), 2 * 10 ** (power + 1))
        if count <= step * most
    )
    return [1, *(tick for tick in range(step, count, step) if 1 < tick <= count - 0.6 * step), count]
