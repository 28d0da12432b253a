"""The dashboard as a person uses it, from the first look to the alarm, on a server of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dashboard.test_drawing import draw
from tests.dashboard.test_live import noise
from tests.dashboard.test_row import NUMBERS, chart, lever
from tests.support.browser import Opener, serious, settled
from tests.support.digit_strokes import drawings
from tests.support.live_server import serving

pytestmark = pytest.mark.browser


def test_a_seven_is_drawn_read_opened_closed_and_drowned_in_noise(dashboard: Opener) -> None:
    """A drawn seven is a 7 with its map, a closed layer changes the answer, and noise raises the alarm."""
    from playwright.sync_api import expect

    with serving("--no-access-log") as server, dashboard(server.url) as page:
        settled(page)
        draw(page, next(one for one in drawings(1) if one.label == "7"))
        expect(page.locator("#try .request-time")).to_contain_text("drawn")
        expect(page.locator("#try .headline .label")).to_have_text("7")
        grid = np.array(chart(page, "T of this row").evaluate(NUMBERS))
        assert grid.shape == (10, 64)
        assert 0 <= grid.min() < 0.1 < 0.9 < grid.max() <= 1

        lever(page, 0, "closed").check()
        expect(page.locator("#row .effect")).to_contain_text("With layer 0 closed")
        expect(page.locator("#try .note")).to_contain_text("layer 0 closed")
        assert serious(page) == []

        noise(server, rows=400)
        drift = page.locator("#live .drift")
        drift.scroll_into_view_if_needed()
        expect(drift.get_by_text("alarm: far from export")).to_be_visible()
