"""How every picture of this package looks, and how it comes to be a file.

Figures are made as objects, never through pyplot: nothing global is set and no window system is asked
for, so a picture can be drawn in any process and any thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from models.atomic import replacing

# Okabe and Ito's colours, which the colour-blind can tell apart
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
INK, GREY, FAINT = "#222222", "#767676", "#D9D9D9"

DPI = 150


def new_figure(width: float, height: float, *, dpi: float = DPI) -> Figure:
    """An empty figure, its size in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.03)
    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def set_title(figure: Figure, text: str, below: str = "") -> None:
    """What the picture shows, and in a smaller line what one should know to read it."""
    # a name of the user's may hold a $, which is no formula here
    figure.suptitle(text, fontsize=12, fontweight="bold", color=INK, parse_math=False)
    if below:
        figure.supxlabel(below, fontsize=8.5, color=GREY, parse_math=False)


def style_axes(axes: Axes) -> None:
    """Axes for curves: a faint grid, and no frame but the two sides that are read."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(GREY)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color=GREY)


def set_epoch_axis(axes: Axes, epochs: int) -> None:
    """An x axis of whole epochs."""
    axes.set_xlabel("epoch", fontsize=10)
    axes.set_xlim(0.5, max(1, epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def show_message(axes: Axes, text: str) -> None:
    """Words in place of a drawing."""
    axes.axis("off")
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=11, color=GREY, transform=axes.transAxes)


def shorten(text: str, length: int) -> str:
    """A name that fits its place."""
    return text if len(text) <= length else text[: length - 1] + "…"


def history_series(history: Sequence[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    """The epochs of a run's history, and what one of its numbers was in each."""
    return [entry["epoch"] for entry in history], [entry[name] for entry in history]


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the picture whole, or leave the old one."""
    with replacing(path) as draft, warnings.catch_warnings():
        # a label in a script that the font lacks is drawn as boxes: no reason to alarm anyone
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(draft)
    return path
