"""Maps of the report, of layers by units.

Heat maps are PNG images with one pixel per number, which the browser enlarges.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from PIL import Image

from turnpike.export.network import Array
from turnpike.reporting.markup import Markup, tag
from turnpike.reporting.page import figure
from turnpike.reporting.svg import legend, swatch

# percentage of the values that may exceed the color scale of a signed map: a few outliers would leave no
# colors for the rest
OUTLIER_PERCENT = 0.5
# palette index of transparent pixels
TRANSPARENT = 255
# letters of column names that fit below a map; if there are more, only the first and last name are shown
MAX_LABEL_LETTERS = 46


def gate_map(title: str, grid: Array, rows: Sequence[str], ends: tuple[str, str]) -> Markup:
    """A heat map of gates from 0, dark, to 1, bright; NaN is transparent. `ends` says what 0 and 1 mean."""
    return _map(title, grid, rows, (), (0.0, 1.0), "viridis", ends)


def signed_map(
    title: str, grid: Array, rows: Sequence[str], columns: Sequence[str] = (), middle: float = 0.0
) -> Markup:
    """A heat map of numbers around a middle, blue below and red above; NaN is transparent."""
    distances = np.abs(grid[np.isfinite(grid)] - middle)
    bound = float(np.percentile(distances, 100 - OUTLIER_PERCENT)) if distances.size else 0.0
    bound = bound or float(distances.max(initial=0.0)) or 1.0
    return _map(title, grid, rows, columns, (middle - bound, middle + bound), "RdBu_r")


def unit_map(title: str, units: Sequence[tuple[Sequence[int], int]], rows: Sequence[str]) -> Markup:
    """A map of the units that each layer keeps, in the color of a curve.

    Args:
        title: Caption.
        units: The ascending numbers of the units that each layer keeps, and how many it had.
        rows: Names of the layers.
    """
    width = max((whole for _, whole in units), default=1)
    lines = [
        tag(
            "path",
            tag("title", f"layer {name}: {len(kept):,} of {whole:,}"),
            d=_dashes(kept, row + 0.5),
            # less than 1, so that layers are apart
            stroke_width=0.86,
            stroke="currentColor",
            class_="series-4",
        )
        for row, (name, (kept, whole)) in enumerate(zip(rows, units, strict=True))
        if kept
    ]
    picture = tag(
        "svg",
        *lines,
        viewBox=f"0 0 {width} {len(rows)}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
        style=_height(rows),
        class_="map",
    )
    names = legend([("kept", swatch("bar series-4")), ("removed", swatch("bar series-faint"))])
    return figure(title, _framed(picture, rows, width, ()), names)


def _dashes(kept: Sequence[int], y: float) -> str:
    """A path with a dash for each run of neighbouring units, in relative moves, which are short."""
    moves, end = [f"M0,{y:g}"], 0
    for first, count in _runs(kept):
        moves.append(f"m{first - end},0h{count}")
        end = first + count
    return "".join(moves)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first number and the length of each run of ascending numbers without a gap."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs


def _map(
    title: str,
    grid: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    ends: tuple[float, float],
    colormap: str,
    words: tuple[str, str] | None = None,
) -> Markup:
    low, high = ends
    finite = grid[np.isfinite(grid)]
    if not finite.size:
        return figure(title, tag("p", "Not known for these layers.", class_="quiet"))
    shares = (grid - low) / (high - low)
    description = f"{len(rows)} layers, {finite.min():.3g} to {finite.max():.3g}"
    image = tag(
        "img",
        src=_png(shares, colormap),
        alt=f"{title}: {description}",
        style=_height(rows),
        class_="map",
    )
    color_bar = tag(
        "div",
        tag("span", f"{low:.2g}" if words is None else f"{low:.2g} {words[0]}"),
        tag("img", src=_png(np.linspace(0, 1, 128)[None], colormap), alt=""),
        tag("span", f"{high:.2g}" if words is None else f"{high:.2g} {words[1]}"),
        class_="key",
    )
    framed = _framed(image, rows, grid.shape[1], columns)
    return figure(title, framed, color_bar)


def _height(rows: Sequence[str]) -> str:
    """The style of a map with a row for each layer."""
    return f"height:{min(30.0, max(7.0, 0.9 * len(rows)))}rem"


def _framed(picture: Markup, rows: Sequence[str], width: int, columns: Sequence[str]) -> Markup:
    """A map with labels beside and below it."""
    row_labels = tag(
        "div", tag("span", rows[0]), tag("span", rows[-1] if len(rows) > 1 else ""), class_="upright"
    )
    return tag("div", row_labels, picture, _column_labels(width, columns), class_="framed")


def _column_labels(count: int, columns: Sequence[str]) -> Markup:
    """Labels below a map: all column names if they fit, or else the first and last."""
    if columns and sum(map(len, columns)) + len(columns) <= MAX_LABEL_LETTERS:
        return tag("div", *(tag("span", name) for name in columns), class_="across names")
    ends = [columns[0], columns[-1]] if columns else ["unit 0", str(count - 1) if count > 1 else ""]
    return tag("div", *(tag("span", end) for end in ends), class_="across")


def _png(shares: Array, colormap: str) -> str:
    """A data URL of a PNG with one pixel per number from 0 to 1; NaN is transparent."""
    # one byte per pixel: an index into a palette whose last entry is transparent
    palette = colormaps[colormap](np.linspace(0, 1, TRANSPARENT), bytes=True)[:, :3]
    indices = np.where(
        np.isfinite(shares), np.rint(np.clip(np.nan_to_num(shares), 0, 1) * (TRANSPARENT - 1)), TRANSPARENT
    )
    image = Image.fromarray(indices.astype(np.uint8), "L")
    image.putpalette([*palette.reshape(-1).tolist(), 0, 0, 0])
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True, transparency=TRANSPARENT)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
