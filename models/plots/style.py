"""The common style of all figures: colors, axes, titles; and saving a figure to a file.

Figures are created as objects and not through pyplot. So there is no global state and no window system, and
figures can be drawn in any process and thread.
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

from turnpike.common.durable_files import replacing

# the dashboard's colors of a light page; tests/test_report_style.py compares them
BLUE, ORANGE, GREEN, RED = "#2b6cb0", "#b4560f", "#17786a", "#b3261e"
INK, GREY, FAINT = "#16202a", "#52606b", "#dbe1e5"

DPI = 150  # pixels per inch of a saved figure


def new_figure(width: float, height: float, *, dpi: float = DPI) -> Figure:
    """Return an empty figure; width and height are in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.03)
    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def set_title(figure: Figure, text: str, below: str = "") -> None:
    """Set the title, and a smaller line of explanation below the figure."""
    # names chosen by the user may contain a $, which must not start a formula
    figure.suptitle(text, fontsize=12, fontweight="bold", color=INK, parse_math=False)
    if below:
        figure.supxlabel(below, fontsize=8.5, color=GREY, parse_math=False)


def style_axes(axes: Axes) -> None:
    """Style axes for curves: a light grid, and a frame only on the left and at the bottom."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(GREY)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color=GREY)


def set_epoch_axis(axes: Axes, epochs: int) -> None:
    """Make the x axis one of whole epochs."""
    axes.set_xlabel("epoch", fontsize=10)
    axes.set_xlim(0.5, max(1, epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))


def show_message(axes: Axes, text: str) -> None:
    """Show a text in place of a plot."""
    axes.axis("off")
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=11, color=GREY, transform=axes.transAxes)


def shorten(text: str, length: int) -> str:
    """Cut a text to a number of characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def history_series(history: Sequence[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    """Return the epochs of a run's history, and the values of one of its figures."""
    return [entry["epoch"] for entry in history], [entry[name] for entry in history]


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the figure atomically: on any error the old file stays."""
    with replacing(path) as draft, warnings.catch_warnings():
        # characters that the font lacks are drawn as boxes; that needs no warning
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(draft)
    return path
