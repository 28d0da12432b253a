"""Plots of how costs grow: turnpike's CPU time per request, compared with what it should cost at least."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.growth.tables import median_points
from benchmarks.results.results_file import ResultLine
from turnpike.common.durable_files import replacing
from turnpike.models.plots import style as canvas

# inches
WIDTH, HEIGHT = 5.2, 3.6
# a vertical axis with a smaller ratio of its ends is widened, so that a flat curve looks flat
MIN_VALUE_RANGE = 30
TURNPIKE_LABEL = "turnpike, CPU"


class Curve(NamedTuple):
    """One field of the points of a growth, with its label and its matplotlib style."""

    growth: str
    field: str
    label: str
    colour: str
    style: str


def curves_with_runs(growth: str) -> tuple[Curve, ...]:
    return (Curve(growth, "cpu_us", TURNPIKE_LABEL, canvas.BLUE, "-"), *run_curves(growth))


def run_curves(growth: str) -> tuple[Curve, ...]:
    """onnxruntime's time for a request: alone in a run, and in full runs."""
    return (
        Curve(growth, "alone_us", "onnxruntime alone, one request per run", canvas.GREY, ":"),
        Curve(growth, "company_us", "onnxruntime alone, full runs", canvas.GREY, "--"),
    )


# label of the horizontal axis, and curves
PLOTS: dict[str, tuple[str, tuple[Curve, ...]]] = {
    "rows": (
        "rows per request",
        (
            Curve("rows, JSON", "cpu_us", f"{TURNPIKE_LABEL}, JSON", canvas.BLUE, "-"),
            Curve("rows, binary", "cpu_us", f"{TURNPIKE_LABEL}, binary", canvas.ORANGE, "-"),
            *run_curves("rows, binary"),
        ),
    ),
    "connections": (
        "connections",
        (
            Curve("connections", "cpu_us", TURNPIKE_LABEL, canvas.BLUE, "-"),
            Curve("connections", "floor_us", "floor of HTTP", canvas.GREY, "--"),
        ),
    ),
    "depth": ("highway layers, 64 units each", curves_with_runs("depth")),
    "width": ("units per highway layer (10 layers)", curves_with_runs("width")),
    "models": (
        "models served",
        (
            Curve("models", "cpu_us", TURNPIKE_LABEL, canvas.BLUE, "-"),
            Curve("models", "single_us", "turnpike, one model, one request per run", canvas.GREY, "--"),
            Curve("models", "alone_us", "onnxruntime alone, one session per model", canvas.GREY, ":"),
        ),
    ),
}


def save_plot(lines: Sequence[ResultLine], name: str, path: Path) -> None:
    """Write the plot of a growth as a PNG."""
    label, curves = PLOTS[name]
    figure = plot_growth(lines, label, curves)
    with replacing(path) as draft:
        figure.savefig(draft, format="png")


def plot_growth(lines: Sequence[ResultLine], label: str, curves: Sequence[Curve]) -> Figure:
    """Microseconds per request by size, on logarithmic axes: proportional growth is a straight line."""
    figure = canvas.new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    canvas.style_axes(axes)

    # curves
    sizes: list[int] = []
    for curve in curves:
        points = median_points(lines, curve.growth)
        sizes = [size for size, _ in points]
        axes.plot(
            sizes,
            [medians(curve.field) for _, medians in points],
            curve.style,
            color=curve.colour,
            label=curve.label,
            marker="o",
            markersize=4,
        )

    # axes
    axes.set_xscale("log", base=2 if len(sizes) > 3 else 10)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if high < MIN_VALUE_RANGE * low:
        axes.set_ylim(low / 2, high * 2)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())

    # labels
    axes.set_xlabel(label, fontsize=11)
    axes.set_ylabel("µs per request", fontsize=11)
    axes.legend(fontsize=10, frameon=False)
    return figure
