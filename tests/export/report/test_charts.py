"""Charts of the report: every number has its position and its color."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from export.report.charts import Series, chart, share_map, signed_map
from export.report.html import Markup


def pixels(markup: Markup) -> np.ndarray:
    match = re.search(r'src="data:image/png;base64,([^"]+)"', markup)
    assert match is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(match[1]))).convert("RGBA"))


def test_a_heat_map_has_a_pixel_for_each_number() -> None:
    """Dark at 0, bright at 1; blue below the middle, red above; NaN is transparent."""
    shares = pixels(share_map("m", np.array([[0.0, 1.0, np.nan]]), ["0"]))
    assert shares.shape == (1, 3, 4)
    assert shares[0, 0].tolist() == [68, 1, 84, 255]
    assert shares[0, 1].tolist() == [253, 231, 36, 255]
    assert shares[0, 2, 3] == 0
    signed = pixels(signed_map("m", np.array([[-3.0, -2.0, -1.0]]), ["0"], middle=-2.0))
    assert signed[0, 0, 2] > signed[0, 0, 0]
    assert signed[0, 2, 0] > signed[0, 2, 2]
    assert signed[0, 1, :3].min() > 240
    assert "Not known" in share_map("m", np.full((1, 2), np.nan), ["0"])


def test_points_of_curves_follow_their_values() -> None:
    """Larger values are higher, powers of ten evenly spaced, and None is not drawn."""
    log = chart("t", [Series("a", [1e-8, 1e-6, None, 1e-4], "blue")], below="x", log=True)
    dots = [float(y) for y in re.findall(r'cy="([\d.]+)"', log)]
    assert len(dots) == 3
    assert dots[0] - dots[1] == pytest.approx(dots[1] - dots[2], abs=0.2)
    assert dots[0] > dots[2]
    flat = chart("t", [Series("a", [0.5, 0.5], "blue")], below="x")
    assert "nan" not in flat
    zero = chart("t", [Series("a", [0.0, 0.0], "blue")], below="x", log=True)
    assert "nan" not in zero
