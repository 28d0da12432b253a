"""Figure of a network's transform gates by layer and unit, as Figure 2 of "Training Very Deep Networks"."""

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
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from turnpike.models.data.dataset import Dataset
from turnpike.models.layers.gate import DenseGate, GatedJoin, record_gates
from turnpike.models.networks.base import Net
from turnpike.models.plots import style
from turnpike.models.plots.style import FAINT, GREY, INK
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.models.training.evaluate import to_network_input

MAX_ROWS = 1000  # test rows to average over
BATCH_ROWS = 50  # small, because a recording keeps the gates and outputs of all layers in memory
MAX_DPI = 400  # limits the size of figures of very wide networks
MAX_BAR_TICKS = 4  # intervals of a color bar; labels such as -2.075 collide if there are more
OUTLIER_PERCENT = 0.5  # share of the values that may be beyond either end of a color scale

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class GateGrids:
    """The four grids of the figure, layers x units each; narrower layers are filled with NaN.

    Attributes:
        biases: Biases of the transform gates.
        mean_gates: Gates, averaged over the rows.
        gates: Gates of the first row.
        outputs: Outputs of the first row.
        averaged: Whether a gate has several positions per row (of an image or in time), over which it was
            averaged too.
    """

    biases: Array
    mean_gates: Array
    gates: Array
    outputs: Array
    averaged: bool


def gate_figure(net: Net, record: TrainingRecord, data: Dataset) -> Figure | None:
    """Draw the gates' biases, their mean over test rows, and one row's gates and outputs, in four panels.

    Returns None if the network has no transform gates.
    """
    rows = data.test.x[:MAX_ROWS]
    grids = gate_grids(net, rows)
    if grids is None:
        return None
    layers, units = grids.biases.shape
    width = min(4.4, max(2.7, 2.3 + units / 150))
    # at least one pixel per unit, so that all are visible
    dpi = min(MAX_DPI, max(style.DPI, units / (0.85 * width)))
    figure = style.new_figure(4 * width, min(8.4, 2.5 + 0.13 * max(6, layers)), dpi=dpi)
    answer = data.test.y[0]
    label = style.shorten(data.labels[int(answer)] if data.task == "classes" else f"{answer:.4g}", 20)
    joins = [module for module in net.modules() if isinstance(module, GatedJoin)]
    below = _averaged_text(joins, data.kind)
    style.set_title(
        figure,
        f"{record.preset} on {record.data['name']}: transform gates",
        below if grids.averaged else "",
    )
    panels = figure.subplots(1, 4, sharey=True)
    # biases stay near their common start, so their colors show the distance from the median
    for axes, name, grid, middle in (
        (panels[0], f"biases ({_range_text(grids.biases)})", grids.biases, float(np.nanmedian(grids.biases))),
        (panels[1], f"mean over {len(rows):,} test rows", grids.mean_gates, None),
        (panels[2], f"gates of one row, label {label}", grids.gates, None),
        (panels[3], "that row's block outputs", grids.outputs, 0.0),
    ):
        _draw_panel(figure, axes, name, grid, middle=middle)
    panels[0].set_ylabel("layer (input at 0)", fontsize=9.5)
    return figure


def gate_grids(net: Net, rows: Tensor) -> GateGrids | None:
    """Compute the four grids, or return None if the network has no transform gates."""
    joins = {name: module for name, module in net.named_modules() if isinstance(module, GatedJoin)}
    if not joins:
        return None
    mean_gates, _ = _measure_means(net, joins, rows)
    gates, outputs = _measure_means(net, joins, rows[:1])
    return GateGrids(
        biases=_to_grid([_bias(join) for join in joins.values()]),
        mean_gates=_to_grid([mean.value for mean in mean_gates]),
        gates=_to_grid([mean.value for mean in gates]),
        outputs=_to_grid([mean.value for mean in outputs]),
        averaged=any(mean.count > len(rows) for mean in mean_gates),
    )


def _measure_means(
    net: Net, joins: dict[str, GatedJoin], rows: Tensor
) -> tuple[list[_UnitMean], list[_UnitMean]]:
    """Return each layer's mean gates and mean outputs by unit."""
    gates = {name: _UnitMean(join) for name, join in joins.items()}
    outputs = {name: _UnitMean(join) for name, join in joins.items()}
    was_training = net.training
    net.eval()
    with torch.inference_mode():
        for batch in _batches(net, rows):
            with record_gates(net) as recordings:
                net(to_network_input(net, batch.to(net.shift.device)))
            for name, recording in recordings.items():
                for gate, output in zip(recording.transform_gates, recording.outputs, strict=True):
                    gates[name].add(gate)
                    outputs[name].add(output)
    net.train(was_training)
    return list(gates.values()), list(outputs.values())


def _bias(join: GatedJoin) -> Tensor:
    bias = join.gate.bias
    return torch.zeros(len(join.gate.weight)) if bias is None else bias.detach().float().cpu()


class _UnitMean:
    """The running mean of each unit over all other axes."""

    def __init__(self, join: GatedJoin) -> None:
        self.unit_axis = -1 if isinstance(join.gate, DenseGate) else 1
        self.total = torch.zeros(())
        self.count = 0

    def add(self, values: Tensor) -> None:
        by_unit = values.double().movedim(self.unit_axis, -1).flatten(0, -2).cpu()
        self.total = self.total + by_unit.sum(0)
        self.count += len(by_unit)

    @property
    def value(self) -> Tensor:
        return self.total / self.count


def _batches(net: Net, rows: Tensor) -> Iterator[Tensor]:
    """Yield the rows in small batches; texts are grouped by length, without padding words."""
    if not (net.reads_ids and 0 in net.free_axes):
        yield from torch.split(rows, BATCH_ROWS)
        return
    is_word = (rows != 0).flatten(2).any(2)
    word_numbers = torch.arange(1, rows.shape[1] + 1)
    lengths = (is_word * word_numbers).amax(1).clamp(min=1)
    for length in sorted(set(lengths.tolist())):
        yield from torch.split(rows[lengths == length, :length], BATCH_ROWS)


def _to_grid(layers: list[Tensor]) -> Array:
    grid = np.full((len(layers), max(map(len, layers))), np.nan)
    for row, values in zip(grid, layers, strict=True):
        row[: len(values)] = values.numpy()
    return grid


def _averaged_text(joins: list[GatedJoin], kind: str) -> str:
    if not all(isinstance(join.gate, DenseGate) for join in joins):
        return "averaged over the positions of each feature map"
    return f"averaged over the {'words of a text' if kind == 'text' else 'time steps'}"


def _draw_panel(figure: Figure, axes: Axes, title: str, grid: Array, *, middle: float | None) -> None:
    layers, units = grid.shape
    norm, extend = (Normalize(0, 1), "neither") if middle is None else _symmetric_scale(grid, middle)
    image = axes.imshow(
        np.ma.masked_invalid(grid),
        cmap=_colormap("viridis" if middle is None else "RdBu_r"),
        norm=norm,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, units - 0.5, layers - 0.5, -0.5),
    )
    axes.set_title(title, fontsize=10.5, color=INK, parse_math=False)
    axes.set_xlabel("unit", fontsize=9.5)
    axes.set_xticks(_ticks(units, 5))
    axes.set_yticks(_ticks(layers, 10))
    axes.tick_params(labelsize=8.5, color=GREY)
    axes.spines[:].set_color(GREY)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=28, pad=0.02, extend=extend)
    bar.ax.xaxis.set_major_locator(MaxNLocator(MAX_BAR_TICKS))
    bar.ax.tick_params(labelsize=8.5, color=GREY)
    bar.outline.set_edgecolor(GREY)


def _range_text(grid: Array) -> str:
    return f"{np.nanmin(grid):.3g} to {np.nanmax(grid):.3g}".replace("-", "\N{MINUS SIGN}")


def _symmetric_scale(grid: Array, middle: float) -> tuple[Normalize, str]:
    """Return a color scale that is symmetric around its middle, and at which ends outliers exceed it."""
    values = grid[np.isfinite(grid)] - middle
    low, high = np.percentile(values, (OUTLIER_PERCENT, 100 - OUTLIER_PERCENT)) if len(values) else (0.0, 0.0)
    bound = float(max(-low, high)) or float(np.abs(values).max(initial=0.0)) or 1.0
    below, above = bool((values < -bound).any()), bool((values > bound).any())
    ends = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}
    return Normalize(middle - bound, middle + bound), ends[below, above]


def _colormap(name: str) -> Colormap:
    """Return a colormap that shows NaN as light grey."""
    return colormaps[name].with_extremes(bad=FAINT)


def _ticks(count: int, max_ticks: int) -> list[int]:
    """Return 0, a few round numbers, and the last of `count` positions."""
    if count <= max_ticks:
        return list(range(count))
    step = next(
        step
        for power in range(6)
        for step in (5 * 10**power, 10 ** (power + 1), 2 * 10 ** (power + 1))
        if count <= step * max_ticks
    )
    return [*(tick for tick in range(0, count, step) if tick <= count - 1 - 0.6 * step), count - 1]
