"""Heat maps of a report: a pixel for each number, in a PNG within the page, that the browser enlarges."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from PIL import Image

from export.report.markup import Markup, tag

Array = np.ndarray[Any, np.dtype[Any]]

# of a scale's ends: a few numbers far out would leave no colours for the rest
OUTLIERS = 0.5
CLEAR = 255
# letters of names that fit below a map; of more there are only the first and the last
ROOM = 46


def share_map(title: str, grid: Array, rows: Sequence[str], columns: Sequence[str] = ()) -> Markup:
    """Numbers from 0 to 1, from dark to bright."""
    return _map(title, grid, rows, columns, (0.0, 1.0), "viridis")


def signed_map(
    title: str, grid: Array, rows: Sequence[str], columns: Sequence[str] = (), middle: float = 0.0
) -> Markup:
    """Numbers on both sides of a middle, blue below and red above."""
    apart = np.abs(grid[np.isfinite(grid)] - middle)
    bound = float(np.percentile(apart, 100 - OUTLIERS)) if apart.size else 0.0
    bound = bound or float(apart.max(initial=0.0)) or 1.0
    return _map(title, grid, rows, columns, (middle - bound, middle + bound), "RdBu_r")


def _map(
    title: str,
    grid: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    ends: tuple[float, float],
    colours: str,
) -> Markup:
    low, high = ends
    shown = (grid - low) / (high - low)
    if np.isfinite(shown).any():
        finite = grid[np.isfinite(grid)]
        says = f"{len(rows)} layers, {finite.min():.3g} to {finite.max():.3g}"
    else:
        return tag(
            "figure", tag("figcaption", title), tag("p", "Not known for these layers.", class_="quiet")
        )
    height = min(30.0, max(7.0, 0.9 * len(rows)))
    picture = tag(
        "img",
        src=_png(shown, colours),
        alt=f"{title}: {says}",
        style=f"height:{height}rem",
        class_="map",
    )
    upright = tag(
        "div", tag("span", rows[0]), tag("span", rows[-1] if len(rows) > 1 else ""), class_="upright"
    )
    units = _across(grid.shape[1], columns)
    bar = tag(
        "div",
        tag("span", f"{low:.2g}"),
        tag("img", src=_png(np.linspace(0, 1, 128)[None], colours), alt="", class_="bar"),
        tag("span", f"{high:.2g}"),
        class_="key",
    )
    return tag("figure", tag("figcaption", title), tag("div", upright, picture, units, class_="framed"), bar)


def _across(count: int, columns: Sequence[str]) -> Markup:
    """What stands below a map."""
    if columns and sum(map(len, columns)) + len(columns) <= ROOM:
        return tag("div", *(tag("span", name) for name in columns), class_="across names")
    ends = [columns[0], columns[-1]] if columns else ["unit 0", str(count - 1) if count > 1 else ""]
    return tag("div", *(tag("span", end) for end in ends), class_="across")


def _png(shares: Array, colours: str) -> str:
    """Numbers from 0 to 1 as a picture; what is no number is left transparent."""
    # a byte for each pixel: its place in a palette whose last colour is none
    palette = colormaps[colours](np.linspace(0, 1, CLEAR), bytes=True)[:, :3]
    places = np.where(np.isfinite(shares), np.rint(np.clip(np.nan_to_num(shares), 0, 1) * (CLEAR - 1)), CLEAR)
    picture = Image.fromarray(places.astype(np.uint8), "L")
    picture.putpalette([*palette.reshape(-1).tolist(), 0, 0, 0])
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True, transparency=CLEAR)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
