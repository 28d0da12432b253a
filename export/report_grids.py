"""Heat maps of a report: a pixel for each number, in a PNG within the page, that the browser enlarges."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from PIL import Image

from export.markup import Markup, tag

Array = np.ndarray[Any, np.dtype[Any]]

# of a scale's ends: a few numbers far out would leave no colours for the rest
OUTLIERS = 0.5


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
    units = tag("div", *_ticks(grid.shape[1], columns), class_="across" if not columns else "across names")
    bar = tag(
        "div",
        tag("span", f"{low:.2g}"),
        tag("img", src=_png(np.linspace(0, 1, 128)[None], colours), alt="", class_="bar"),
        tag("span", f"{high:.2g}"),
        class_="key",
    )
    return tag("figure", tag("figcaption", title), tag("div", upright, picture, units, class_="framed"), bar)


def _ticks(count: int, columns: Sequence[str]) -> list[Markup]:
    if columns:
        return [tag("span", tag("span", name), title=name) for name in columns]
    return [tag("span", "unit 0"), tag("span", count - 1 if count > 1 else "")]


def _png(shares: Array, colours: str) -> str:
    """Numbers from 0 to 1 as a picture; what is no number is left transparent."""
    colour = colormaps[colours].with_extremes(bad=(0, 0, 0, 0))
    pixels = colour(np.ma.masked_invalid(np.clip(shares, 0, 1)), bytes=True)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
