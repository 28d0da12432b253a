"""A compressed model beside its original in section "Models", and its units by their original numbers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.support.browser import OpenDashboard, axe_violations, wait_until_idle
from tests.support.live_server import Server, serving
from turnpike.export.compress import trials
from turnpike.export.compress.remove_units import compress_model
from turnpike.export.compress.speed import Timing
from turnpike.export.pipeline import export_model
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

WIDTH = 16
# the units whose gates are open, by layer: the others are removed, and with them the second layer
OPEN = ((2, 5, 11), (), (0, 15))
KEEP = 0.11
# runs a row of ones through the model and publishes the reading
SEND_ONES = """async () => {
  const { current, publish } = await import("/dashboard/state/store.js");
  const [{ name }] = current("model").inputs;
  const inputs = [{ name, datatype: "FP32", shape: [1, 16], data: new Float32Array(16).fill(1) }];
  publish("open row", { title: "a row of ones", inputs });
}"""
# for each row of a map, the columns with a value
FILLED_CELLS = """(figure) => Array.from(figure.querySelector(".plot").data[0].z,
  (row) => Array.from(row.keys()).filter((n) => Number.isFinite(row[n])))"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network as version 1, and as version 2 with the units of OPEN alone."""
    folder = tmp_path_factory.mktemp("compression")
    torch.manual_seed(0)
    config = MlpConfig(inputs=(WIDTH,), classes=3, width=WIDTH, layers=3, entry="none", scaling="none")
    net = build_network(config).eval()
    with torch.no_grad():
        biases = [parameter for name, parameter in net.named_parameters() if name.endswith("gate.bias")]
        for bias, units in zip(biases, OPEN, strict=True):
            bias.fill_(-12)
            bias[list(units)] = 1
    x = np.random.default_rng(0).standard_normal((200, WIDTH)).astype(np.float32)
    with torch.no_grad():
        y = net(torch.from_numpy(x)).argmax(1).numpy()
    np.savez(folder / "rows.npz", x=x, y=y)
    root = folder / "repository"
    whole = export_model(
        net, root, inputs=[f"x:float32[batch,{WIDTH}]"], name="net", data=folder / "rows.npz"
    )
    with pytest.MonkeyPatch.context() as patch:
        # so narrow a network gains nothing from a cut; here each cut is twice as fast
        patch.setattr(
            trials,
            "measure_speed",
            lambda runtimes, *_: [Timing({1: 2.0 if n == 0 else 1.0}) for n in range(len(runtimes))],
        )
        compress_model(whole.path, root, data=folder / "rows.npz", keep=KEEP)
    return root


@pytest.fixture(scope="module")
def both_versions(repository: Path) -> Iterator[Server]:
    with serving("--models", repository, "--versions", "all", "--no-access-log") as server:
        yield server


def panel(page: Page) -> Locator:
    """The panel, scrolled into the window, which makes it look for the original."""
    found = page.locator("#models .compression")
    found.scroll_into_view_if_needed()
    return found


def cells_of(page: Page, title: str, row: str) -> list[str]:
    """The texts of a row of a table in the panel."""
    table = panel(page).get_by_role("region", name=title)
    line = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name=row, exact=True))
    return [text.strip() for text in line.get_by_role("cell").all_inner_texts()]


def test_a_compressed_model_is_shown_beside_its_original(
    dashboard: OpenDashboard, both_versions: Server
) -> None:
    """Every layer and unit of the original, both models' figures, the times of live runs, and the curve."""
    from playwright.sync_api import expect

    record = both_versions.get("/v2/models/net/versions/2/certificate").json()["compression"]
    for version in (1, 2):
        body = {"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [1.0] * WIDTH}]}
        assert both_versions.post(f"/v2/models/net/versions/{version}/infer", body).status_code == 200
    with dashboard(both_versions.url, tab="models", path="/#model=net/2") as page:
        expect(panel(page)).to_contain_text("5 of 48 units are left")
        expect(panel(page)).to_contain_text("The original is served as")
        strips = panel(page).get_by_role("region", name="Units that are left")
        expect(strips.locator("tbody td.number")).to_have_text(["3 of 16", "none of 16", "2 of 16"])
        for kind, counts in (("left", [3, 0, 2]), ("removed", [13, 16, 14])):
            outlines = strips.locator(f"path.{kind}").evaluate_all(
                "(paths) => paths.map((path) => path.getAttribute('d').split('M').length - 1)"
            )
            assert outlines == counts
        strips.locator("svg").first.hover(position={"x": 1, "y": 5})
        expect(panel(page)).to_contain_text("Layer 0, unit 0: removed")
        panel(page).get_by_text("Unit numbers").click()
        expect(panel(page).get_by_role("group", name="Unit numbers").locator("p")).to_have_text(
            ["Layer 0: 2, 5, 11", "Layer 1: none", "Layer 2: 0, 15"]
        )

        expect(panel(page)).to_contain_text("run of 1 row, live")
        beside = "The compressed model beside its original"
        assert cells_of(page, beside, "units")[:2] == ["5", "48"]
        assert cells_of(page, beside, "accuracy")[0] == f"{100 * record['metric']:.2f} %"
        assert cells_of(page, beside, "same answers")[0] == f"{100 * record['agreement']:.2f} %"
        assert (
            cells_of(page, beside, "run of 1 row, at compression")[2] == "2.00\N{MULTIPLICATION SIGN} faster"
        )
        for time in cells_of(page, beside, "run of 1 row, live")[:2]:
            assert re.fullmatch(r"[\d.]+ (s|ms|\N{MICRO SIGN}s)", time)
        shares = panel(page).get_by_role("region", name="Other shares of the units").locator("tbody tr")
        # a tenth of 48 units is 5 as well, so that this point of the curve is the file
        assert 5 / 48 in [point["share"] for point in record["curve"]]
        expect(shares).to_have_count(len(record["curve"]))
        expect(shares.filter(has_text="this file")).to_contain_text("10.4 %")
        panel(page).locator("figure .main-svg").first.wait_for()
        assert axe_violations(page) == []

        panel(page).get_by_role("button", name="net/1").click()
        expect(page.locator("#models .about-title").first).to_have_text("net/1")
        expect(page.locator("#models .compression")).to_be_hidden()


@pytest.mark.thorough
def test_units_have_their_original_numbers(dashboard: OpenDashboard, both_versions: Server) -> None:
    """The same unit has the same number in charts of both models."""
    from playwright.sync_api import expect

    left = [list(units) for units in OPEN if units]
    with dashboard(both_versions.url, path="/#model=net/2") as page:
        wait_until_idle(page)
        page.evaluate(SEND_ONES)
        expect(page.locator("#row .row-title")).to_contain_text("a row of ones")
        assert filled(page, "#row .map-and-layers figure") == left
        bars = page.locator("#row .part").filter(has_text="T by unit").locator("figure").first
        bars.scroll_into_view_if_needed()
        bars.locator(".main-svg").first.wait_for()
        names = bars.evaluate("(figure) => figure.querySelector('.plot').data[0].customdata")
        assert names == ["2", "5", "11"]
        page.evaluate("location.hash = '#model=net/2&tab=gates'")
        for title in ("Gate biases", "Mean T", "T of this row"):
            assert filled(page, f"#gates .titled:has(h3:text-is('{title}')) figure") == left, title
        outputs = filled(page, "#gates .titled:has(h3:text-is('Outputs of this row')) figure")
        assert outputs == [list(range(WIDTH))] * 2


def filled(page: Page, figure: str) -> Any:
    """For each row of a map, the columns with a value."""
    page.locator(figure).scroll_into_view_if_needed()
    page.locator(f"{figure} .main-svg").first.wait_for()
    return page.locator(figure).evaluate(FILLED_CELLS)


def test_without_the_original_the_layers_are_derived(
    dashboard: OpenDashboard, repository: Path, tmp_path: Path
) -> None:
    """A gap in the numbers of the layers is a layer that is gone; a row shows how wide the layers were."""
    from playwright.sync_api import expect

    shutil.copytree(repository / "net/2", tmp_path / "net/2")
    with (
        serving("--models", tmp_path, "--no-access-log") as server,
        dashboard(server.url, tab="models", path="/#model=net/2") as page,
    ):
        expect(panel(page)).to_contain_text("The original is not served here")
        counts = panel(page).get_by_role("region", name="Units that are left").locator("tbody td.number")
        expect(counts.nth(1)).to_have_text("none")
        page.evaluate(SEND_ONES)
        page.evaluate("location.hash = '#model=net/2&tab=try'")
        expect(page.locator("#row .row-title")).to_contain_text("a row of ones")
        page.evaluate("location.hash = '#model=net/2&tab=models'")
        panel(page)
        expect(counts).to_have_text(["3 of 16", "none", "2 of 16"])


def test_channels_have_their_original_numbers(dashboard: OpenDashboard, both_versions: Server) -> None:
    """Another layer with as many channels, of other numbers, has a list of its own."""
    with dashboard(both_versions.url) as page:
        wait_until_idle(page)
        lists, shown = page.evaluate("""async () => {
          const { startLayerDetail } = await import("/dashboard/row/layer_detail.js");
          const body = document.createElement("div");
          document.querySelector("#row .body").append(body);
          const draw = startLayerDetail(body);
          const tensor = { shape: [1, 2, 2, 2], data: [0, 0, 0, 0, 1, 1, 1, 1] };
          const reading = { gates: [], tensors: new Map([["t", tensor]]), missing: null };
          const gate = { name: "t", unit_axis: -3, kind: "coupled", carry: "identity", time: null };
          const list = body.querySelector("[aria-label=Channel]");
          const lists = [[1, 4], [0, 4]].map((kept) => {
            draw({ name: "0", gates: [{ ...gate, kept }] }, reading);
            return Array.from(list.options, ({ value }) => value);
          });
          list.value = "4";
          list.dispatchEvent(new Event("change"));
          const plot = () => body.querySelector(".plot");
          while (!plot().data) await new Promise((resolve) => setTimeout(resolve, 50));
          return [lists, [body.querySelector("h4").textContent, ...plot().data[0].z.map((row) => [...row])]];
        }""")
        assert lists == [["mean", "1", "4"], ["mean", "0", "4"]]
        assert shown == ["T of channel 4", [1, 1], [1, 1]]
