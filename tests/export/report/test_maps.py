"""Heat maps of the report: every number has its pixel and its color."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

from turnpike.export.report.maps import gate_map, signed_map
from turnpike.reporting.markup import Markup


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


def test_the_ends_of_a_gate_map_have_words() -> None:
    drawn = gate_map("m", np.array([[0.0, 1.0]]), ["0"], ("carried", "transformed"))
    assert "<span>0 carried</span>" in drawn
    assert "<span>1 transformed</span>" in drawn
    assert "carried" not in signed_map("m", np.array([[0.0, 1.0]]), ["0"])
