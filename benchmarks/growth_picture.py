"""How costs grow, as a picture for each growth: what the service spends, beside what it should."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.growth_tables import points
from benchmarks.lines import Line
from models.atomic import replacing
from models.plots import style as canvas

WIDTH, HEIGHT = 5.2, 3.6
SPENT = "turnpike, CPU"
# of each picture: its title, and of each curve what was grown, what was measured, and what it is called
Curve = tuple[str, str, str, str, str]
RUNS = (
    ("alone_us", "onnxruntime, by itself", canvas.GREY, ":"),
    ("company_us", "onnxruntime, full runs", canvas.GREY, "--"),
)


def of_runs(what: str) -> tuple[Curve, ...]:
    return ((what, "cpu_us", SPENT, canvas.BLUE, "-"), *((what, *run) for run in RUNS))


PICTURES: dict[str, tuple[str, tuple[Curve, ...]]] = {
    "rows": (
        "rows a request",
        (
            ("rows, JSON", "cpu_us", f"{SPENT}, JSON", canvas.BLUE, "-"),
            ("rows, binary", "cpu_us", f"{SPENT}, binary", canvas.ORANGE, "-"),
            *((("rows, binary", *run)) for run in RUNS),
        ),
    ),
    "connections": (
        "connections",
        (
            ("connections", "cpu_us", SPENT, canvas.BLUE, "-"),
            ("connections", "floor_us", "floor of HTTP", canvas.GREY, "--"),
        ),
    ),
    "depth": ("highway layers of 64", of_runs("depth")),
    "width": ("width of 10 layers", of_runs("width")),
    "models": (
        "models served",
        (
            ("models", "cpu_us", SPENT, canvas.BLUE, "-"),
            ("models", "single_us", "one model, runs of one request", canvas.GREY, "--"),
            ("models", "alone_us", "onnxruntime, so many sessions", canvas.GREY, ":"),
        ),
    ),
}


def draw(lines: Sequence[Line], name: str, to: Path) -> None:
    """The picture of a growth as a PNG."""
    label, curves = PICTURES[name]
    figure = picture(lines, label, curves)
    with replacing(to) as draft:
        figure.savefig(draft, format="png")


def picture(lines: Sequence[Line], label: str, curves: Sequence[Curve]) -> Figure:
    """µs a request by size, both as powers: what grows in line with the work is a straight line."""
    figure = canvas.new_figure(WIDTH, HEIGHT)
    axes = figure.subplots()
    canvas.style_axes(axes)
    sizes: list[int] = []
    for what, measured, called, colour, style in curves:
        here = points(lines, what)
        sizes = [size for size, _ in here]
        axes.plot(
            sizes,
            [of(measured) for _, of in here],
            style,
            color=colour,
            label=called,
            marker="o",
            markersize=4,
        )
    axes.set_xscale("log", base=2 if len(sizes) > 3 else 10)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if high < 30 * low:
        # a curve that ought to be flat is seen to be so beside a whole power of ten
        axes.set_ylim(low / 2, high * 2)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label, fontsize=11)
    axes.set_ylabel("µs a request", fontsize=11)
    axes.legend(fontsize=10, frameon=False)
    return figure
