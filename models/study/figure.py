"""The picture of a study: training loss at each depth, and what depth does to accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from models.networks.feedforward import LayerKind
from models.plots import style
from models.plots.style import BLUE, GREEN, GREY, INK, ORANGE
from models.study.baseline import MajorityBaseline
from models.study.results import RunResult
from models.study.study import Study

STYLES: dict[LayerKind, tuple[str, str]] = {
    "highway": (BLUE, "o"),
    "plain": (ORANGE, "s"),
    "residual": (GREEN, "^"),
}
MAX_PANELS_ACROSS = 5
MIN_SHOWN_LOSS = 1e-8  # a loss that a logarithmic axis still shows
MAX_LOSS_OVER_BASELINE = 4.0  # times the loss of chance: how far up the axis goes


def depth_figure(study: Study, results: Sequence[RunResult], chance: MajorityBaseline) -> Figure:
    """A panel for each depth, a line for each family, and a last panel of test accuracy by depth.

    `results` holds one run for each family and depth.
    """
    panels = len(study.depths) + 1
    across = panels if panels <= MAX_PANELS_ACROSS else ceil(panels / 2)
    down = ceil(panels / across)
    figure = style.new_figure(3.0 * across + 0.6, 3.1 * down + 0.9)
    style.set_title(figure, f"Depth on {study.data}: training loss, and test accuracy")
    places = list(figure.subplots(down, across, squeeze=False).flat)
    losses = [entry["loss"] for result in results for entry in result.history if isfinite(entry["loss"])]
    bounds = (
        max(MIN_SHOWN_LOSS, 0.7 * min([chance.loss / 3, *losses])),
        min(MAX_LOSS_OVER_BASELINE * chance.loss, 1.5 * max([chance.loss, *losses])),
    )
    for axes, depth in zip(places, study.depths, strict=False):
        of_depth = [result for result in results if result.cell.depth == depth]
        _losses(axes, f"{depth} layers", of_depth, study.recipe.epochs, chance.loss, bounds)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("training loss", fontsize=10)
    _accuracies(places[panels - 1], study, results, chance.accuracy)
    for axes in places[panels:]:
        axes.axis("off")
    figure.legend(
        handles=_legend(study, results), loc="outside lower center", ncols=6, frameon=False, fontsize=10
    )
    return figure


def _losses(
    axes: Axes,
    name: str,
    results: Sequence[RunResult],
    epochs: int,
    chance_loss: float,
    bounds: tuple[float, float],
) -> None:
    style.style_axes(axes)
    style.set_epoch_axis(axes, epochs)
    axes.set_title(name, fontsize=11, loc="left", color=INK)
    axes.set_yscale("log")
    axes.set_ylim(*bounds)
    axes.axhline(chance_loss, color=GREY, linestyle="--", linewidth=1)
    for result in results:
        color, marker = STYLES[result.cell.family]
        at, values = style.history_series(result.history, "loss")
        values = [max(value, MIN_SHOWN_LOSS) for value in values]
        axes.plot(at, values, color=color, linewidth=1.8, marker=marker if epochs <= 30 else "", markersize=4)
        if result.state == "diverged" and result.epoch is not None:
            # where the loss of that epoch would stand, had it been a number
            axes.plot(
                [result.epoch],
                [0.985],
                "X",
                color=color,
                markersize=8,
                clip_on=False,
                transform=axes.get_xaxis_transform(),
            )


def _accuracies(axes: Axes, study: Study, results: Sequence[RunResult], chance: float) -> None:
    style.style_axes(axes)
    axes.set_title("test accuracy", fontsize=11, loc="left", color=INK)
    axes.axhline(chance, color=GREY, linestyle="--", linewidth=1)
    order = sorted(study.depths)
    for family in study.families:
        color, marker = STYLES[family]
        tested = sorted(
            (order.index(result.cell.depth), result.test_accuracy)
            for result in results
            if result.cell.family == family and result.test_accuracy is not None
        )
        if tested:
            axes.plot(*zip(*tested, strict=True), color=color, linewidth=1.8, marker=marker, markersize=6)
        lost = [
            order.index(result.cell.depth)
            for result in results
            if result.cell.family == family and result.state == "diverged"
        ]
        # at the foot, and not at all where there are none: an empty line upsets the layout
        if lost:
            axes.plot(lost, [0.0] * len(lost), "X", color=color, markersize=8, clip_on=False)
    axes.set_xticks(range(len(order)), labels=[str(depth) for depth in order])
    axes.set_xlim(-0.4, len(order) - 0.6)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("layers", fontsize=10)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _legend(study: Study, results: Sequence[RunResult]) -> list[Line2D]:
    lines = [
        Line2D([], [], color=STYLES[family][0], marker=STYLES[family][1], label=family)
        for family in study.families
    ]
    lines.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="chance"))
    if any(result.state == "diverged" for result in results):
        lines.append(Line2D([], [], color=GREY, marker="X", linestyle="", markersize=8, label="diverged"))
    return lines
