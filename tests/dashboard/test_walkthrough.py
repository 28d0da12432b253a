"""One walk through the whole dashboard, on a server of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, open_tab, wait_until_idle
from tests.support.dashboard_live import send_noise
from tests.support.dashboard_row import CELLS, chart, layer_switch
from tests.support.dashboard_try import draw
from tests.support.digit_strokes import digit_drawings
from tests.support.live_server import serving

pytestmark = pytest.mark.browser


def test_draw_a_seven_close_a_layer_and_raise_the_drift_alarm(dashboard: OpenDashboard) -> None:
    from playwright.sync_api import expect

    with serving("--no-access-log") as server, dashboard(server.url) as page:
        wait_until_idle(page)
        draw(page, next(drawing for drawing in digit_drawings(1) if drawing.label == "7"))
        expect(page.locator("#try .request-time")).to_contain_text("drawn")
        expect(page.locator("#try .headline .label")).to_have_text("7")
        grid = np.array(chart(page, "T of this row").evaluate(CELLS))
        assert grid.shape == (10, 64)
        assert 0 <= grid.min() < 0.1 < 0.9 < grid.max() <= 1

        layer_switch(page, 0, "closed").check()
        expect(page.locator("#row .effect")).to_contain_text("With layer 0 closed")
        expect(page.locator("#try .note")).to_contain_text("layer 0 closed")
        assert axe_violations(page) == []

        send_noise(server, rows=400)
        open_tab(page, "Gates")
        expect(page.locator("#gates")).to_contain_text("drawn, with layer 0 closed")
        open_tab(page, "Live")
        drift = page.locator("#live .drift")
        drift.scroll_into_view_if_needed()
        expect(drift.get_by_text("alarm: far from export")).to_be_visible()
