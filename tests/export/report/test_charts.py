"""Charts of the report: every number has its position and its color."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from export.report.charts import Series, chart, gate_map, signed_map
from export.report.html import Markup


def pixels(markup: Markup) -> np.ndarray:
    match = re.search(r'src="data:image/png;base64,([^"]+)"', markup)
    assert match is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(match[1]))).convert("RGBA"))


def test_a_heat_map_has_a_pixel_for_each_number() -> None:
    """Dark at 0, bright at 1; blue below the middle, red above; NaN is transparent."""
    shares = pixels(gate_map("m", np.array([[0.0, 1.0, np.nan]]), ["0"], ("closed", "open")))
    assert shares.shape == (1, 3, 4)
    assert shares[0, 0].tolist() == [68, 1, 84, 255]
    assert shares[0, 1].tolist() == [253, 231, 36, 255]
    assert shares[0, 2, 3] == 0
    signed = pixels(signed_map("m", np.array([[-3.0, -2.0, -1.0]]), ["0"], middle=-2.0))
    assert signed[0, 0, 2] > signed[0, 0, 0]
    assert signed[0, 2, 0] > signed[0, 2, 2]
    assert signed[0, 1, :3].min() > 240
    assert "Not known" in gate_map("m", np.full((1, 2), np.nan), ["0"], ("closed", "open"))


def test_points_of_curves_follow_their_values() -> None:
    """Larger values are higher, powers of ten evenly spaced, and None is not drawn."""
    log = chart("t", [Series("a", [1e-8, 1e-6, None, 1e-4], "series-4")], below="x", log=True)
    dots = [float(y) for y in re.findall(r'cy="([\d.]+)"', log)]
    assert len(dots) == 3
    assert dots[0] - dots[1] == pytest.approx(dots[1] - dots[2], abs=0.2)
    assert dots[0] > dots[2]
    flat = chart("t", [Series("a", [0.5, 0.5], "series-4")], below="x")
    assert "nan" not in flat
    zero = chart("t", [Series("a", [0.0, 0.0], "series-4")], below="x", log=True)
    assert "nan" not in zero


def test_long_names_are_on_the_axis() -> None:
    """Each tensor has its name, upright; its point and its label have the whole name as a tooltip."""
    names = [f"layer{n:02}.transform_gate.of_a_long_name" for n in range(20)]
    drawn = chart("t", [Series("a", [1.0] * 20, "series-4")], below="tensor", places=names, joined=False)
    assert drawn.count("rotate(-90)") == 20
    for name in names:
        assert f"<title>{name}</title>{name[:23]}…</text>" in drawn
        assert f"<title>{name}, a: 1</title>" in drawn


def test_a_pass_line_has_a_level_for_each_position() -> None:
    drawn = chart(
        "t", [Series("a", [1.0, 1.0, 1.0], "series-4")], below="x", level=("passes below", [3.0, None, 2.0])
    )
    match = re.search(r'd="(M[^"]*)" class="level"', drawn)
    assert match is not None
    heights = [float(y) for y in re.findall(r"M[\d.]+,([\d.]+)H", match[1])]
    assert len(heights) == 2
    assert heights[0] < heights[1]
    assert "passes below" in drawn


def test_the_ends_of_a_gate_map_have_words() -> None:
    drawn = gate_map("m", np.array([[0.0, 1.0]]), ["0"], ("carried", "transformed"))
    assert "<span>0 carried</span>" in drawn
    assert "<span>1 transformed</span>" in drawn
    assert "carried" not in signed_map("m", np.array([[0.0, 1.0]]), ["0"])
