"""The figure of a study: training loss by epoch for each depth, and test accuracy by depth."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from turnpike.models.choices import LayerKind
from turnpike.models.plots import style
from turnpike.models.plots.style import BLUE, GREEN, GREY, INK, ORANGE
from turnpike.models.study.baseline import MajorityBaseline
from turnpike.models.study.results import RunResult
from turnpike.models.study.study_plan import Study

STYLES: dict[LayerKind, tuple[str, str]] = {
    "highway": (BLUE, "o"),
    "plain": (ORANGE, "s"),
    "residual": (GREEN, "^"),
}
MAX_PANELS_ACROSS = 5  # with more panels, use two rows
MIN_SHOWN_LOSS = 1e-8  # smaller losses are drawn at this value, since the axis is logarithmic
MAX_LOSS_OVER_BASELINE = 4.0  # the loss axis ends at most at this multiple of the baseline's loss


def depth_figure(study: Study, results: Sequence[RunResult], baseline: MajorityBaseline) -> Figure:
    """Draw one panel of training losses per depth, with a line per family, and one of test accuracies.

    Args:
        study: The study.
        results: One run per family and depth.
        baseline: Drawn as a dashed line in every panel.
    """
    panels = len(study.depths) + 1
    across = panels if panels <= MAX_PANELS_ACROSS else ceil(panels / 2)
    down = ceil(panels / across)
    figure = style.new_figure(3.0 * across + 0.6, 3.1 * down + 0.9)
    style.set_title(figure, f"Depth on {study.data}: training loss, and test accuracy")
    all_axes = list(figure.subplots(down, across, squeeze=False).flat)

    # one range of losses for all panels
    losses = [entry["loss"] for result in results for entry in result.history if isfinite(entry["loss"])]
    bounds = (
        max(MIN_SHOWN_LOSS, 0.7 * min([baseline.loss / 3, *losses])),
        min(MAX_LOSS_OVER_BASELINE * baseline.loss, 1.5 * max([baseline.loss, *losses])),
    )
    for axes, depth in zip(all_axes, study.depths, strict=False):
        depth_results = [result for result in results if result.run.depth == depth]
        _draw_losses(axes, f"{depth} layers", depth_results, study.recipe.epochs, baseline.loss, bounds)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("training loss", fontsize=10)
    _draw_accuracies(all_axes[panels - 1], study, results, baseline.accuracy)
    for axes in all_axes[panels:]:
        axes.axis("off")
    figure.legend(
        handles=_legend(study, results), loc="outside lower center", ncols=6, frameon=False, fontsize=10
    )
    return figure


def _draw_losses(
    axes: Axes,
    title: str,
    results: Sequence[RunResult],
    epochs: int,
    baseline_loss: float,
    bounds: tuple[float, float],
) -> None:
    style.style_axes(axes)
    style.set_epoch_axis(axes, epochs)
    axes.set_title(title, fontsize=11, loc="left", color=INK)
    axes.set_yscale("log")
    axes.set_ylim(*bounds)
    axes.axhline(baseline_loss, color=GREY, linestyle="--", linewidth=1)
    for result in results:
        color, marker = STYLES[result.run.family]
        epoch_numbers, losses = style.history_series(result.history, "loss")
        losses = [max(loss, MIN_SHOWN_LOSS) for loss in losses]
        axes.plot(
            epoch_numbers,
            losses,
            color=color,
            linewidth=1.8,
            marker=marker if epochs <= 30 else "",
            markersize=4,
        )
        if result.state == "diverged" and result.epoch is not None:
            # mark the epoch at the top of the panel, since its loss is not a number
            axes.plot(
                [result.epoch],
                [0.985],
                "X",
                color=color,
                markersize=8,
                clip_on=False,
                transform=axes.get_xaxis_transform(),
            )


def _draw_accuracies(
    axes: Axes, study: Study, results: Sequence[RunResult], baseline_accuracy: float
) -> None:
    style.style_axes(axes)
    axes.set_title("test accuracy", fontsize=11, loc="left", color=INK)
    axes.axhline(baseline_accuracy, color=GREY, linestyle="--", linewidth=1)
    depths = sorted(study.depths)
    for family in study.families:
        color, marker = STYLES[family]
        tested = sorted(
            (depths.index(result.run.depth), result.test_accuracy)
            for result in results
            if result.run.family == family and result.test_accuracy is not None
        )
        if tested:
            axes.plot(*zip(*tested, strict=True), color=color, linewidth=1.8, marker=marker, markersize=6)
        diverged = [
            depths.index(result.run.depth)
            for result in results
            if result.run.family == family and result.state == "diverged"
        ]
        # mark diverged runs at the bottom; without any, draw nothing, because an empty line breaks the layout
        if diverged:
            axes.plot(diverged, [0.0] * len(diverged), "X", color=color, markersize=8, clip_on=False)
    axes.set_xticks(range(len(depths)), labels=[str(depth) for depth in depths])
    axes.set_xlim(-0.4, len(depths) - 0.6)
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
