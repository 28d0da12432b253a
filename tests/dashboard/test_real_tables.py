"""The page of a table as people have it: its form, opening row, CSV files, code, and numbers to predict."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, model_path, open_tab, wait_until_idle
from tests.support.dashboard_try import (
    CURRENT_ROW,
    SET_LAYER_STATE,
    run_curl,
    run_python,
    upload,
    wait_for_prediction,
)
from tests.support.live_server import Server, serving
from tests.support.table_model import HEADER, put_table_models
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature, Interval

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

# a table that does not publish the words of its first column
HIDDEN = (
    Feature(name="town", kind="category", low=0, high=5, mean=2, sd=1),
    *(Feature(name=name, low=0, high=1, mean=0.5, sd=1) for name in "abc"),
)
PLAIN = tuple(Feature(name=name, low=0, high=1, mean=0.5, sd=1) for name in "abcd")
INTERVAL = Interval(level=0.9, half_width=250, rows=40)
MINUS = "\N{MINUS SIGN}"
ANSWER = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  return Array.from(current("shown reading").outputs[0].data, Number);
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("tables")
    put_table_models(root, tmp_path_factory.mktemp("runs"))
    put_model(root, "hidden", data=with_manifest(highway(), features=HIDDEN))
    wide = {"labels": (), "features": PLAIN, "task": "number", "target": "price", "interval": INTERVAL}
    put_model(root, "wide", data=with_manifest(highway(classes=1), **wide))
    with serving("--models", root, "--no-access-log") as server:
        yield server


@pytest.fixture
def fruit(dashboard: OpenDashboard, server: Server) -> Iterator[Page]:
    """Predicts classes."""
    with dashboard(server.url, path=model_path("fruit"), accept_downloads=True) as page:
        wait_until_idle(page)
        yield page


@pytest.fixture
def price(dashboard: OpenDashboard, server: Server) -> Iterator[Page]:
    """Predicts a number."""
    with dashboard(server.url, path=model_path("price"), accept_downloads=True) as page:
        wait_until_idle(page)
        yield page


def fill(page: Page, *, blank: bool = False) -> dict[str, Any]:
    """Fill the form by hand; returns the cells."""
    page.get_by_role("spinbutton", name="mass [kg]").fill("50.5")
    page.get_by_role("spinbutton", name="rate %").fill("4.25")
    page.get_by_role("combobox", name="color").select_option("green")
    page.get_by_role("combobox", name="member").select_option("true")
    page.get_by_label("day", exact=True).fill("2018-03-01")
    cells = {"mass [kg]": 50.5, "rate": 4.25, "color": "green", "member": True, "day": "01.03.2018"}
    if blank:
        page.get_by_role("button", name="Leave mass [kg] blank").click()
        page.get_by_role("button", name="Leave day blank").click()
        page.get_by_role("combobox", name="color").select_option("another word")
        page.get_by_role("combobox", name="member").select_option("blank")
        cells |= {"mass [kg]": None, "color": "another word", "member": None, "day": None}
    wait_until_idle(page)
    return cells


def predicted(server: Server, model: str, cells: dict[str, Any]) -> Any:
    return server.post(f"/v1/models/{model}:predict", {"instances": [cells]}).json()["predictions"][0]


@pytest.mark.parametrize("blank", [False, True], ids=["full", "blank"])
def test_the_form_has_a_control_for_each_kind(fruit: Page, server: Server, blank: bool) -> None:
    """The answer, the code and the address are those of the cells in the form."""
    from playwright.sync_api import expect

    cells = fill(fruit, blank=blank)
    answer = predicted(server, "fruit", cells)
    expect(fruit.locator("#try .headline .label")).to_have_text(answer["label"])
    expect(fruit.locator("#try .headline .share")).to_have_text(f"{100 * answer['probability']:.1f} %")
    fruit.locator("#try summary", has_text="Python").click()
    codes = fruit.locator("#try .snippet pre").all_inner_texts()
    assert '"color": "another word"' in codes[0] if blank else '"day": "01.03.2018"' in codes[0]
    for code, run in zip(codes, (run_curl, run_python), strict=True):
        assert run(code)["predictions"] == [answer]
    assert axe_violations(fruit) == []

    row = fruit.evaluate(CURRENT_ROW)
    fruit.reload()
    wait_until_idle(fruit)
    np.testing.assert_array_equal(fruit.evaluate(CURRENT_ROW)[0]["data"], np.float32(row[0]["data"]))
    shown = fruit.get_by_label("day", exact=True).input_value()
    assert shown == ("" if blank else "2018-03-01")


def test_a_column_without_blanks_needs_a_value(fruit: Page) -> None:
    from playwright.sync_api import expect

    expect(fruit.get_by_role("button", name=re.compile("^Leave"))).to_have_count(2)
    fruit.get_by_role("spinbutton", name="rate %").fill("")
    expect(fruit.get_by_text("rate: expected a number")).to_be_visible()


def test_a_blank_ends_with_a_move_of_its_slider(fruit: Page) -> None:
    from playwright.sync_api import expect

    field = fruit.get_by_role("spinbutton", name="mass [kg]")
    slider = fruit.get_by_role("slider", name=re.compile("^mass"))
    fruit.get_by_role("button", name="Leave mass [kg] blank").click()
    expect(slider).to_have_class("blank")
    expect(field).to_have_value("")
    slider.fill("55")
    expect(slider).not_to_have_class("blank")
    expect(field).to_have_value("55")


def test_a_category_without_words_has_a_field_for_its_index(dashboard: OpenDashboard, server: Server) -> None:
    """Only tensors have the index, so the code sends them, and a file cannot be read."""
    from playwright.sync_api import expect

    with dashboard(server.url, path=model_path("hidden")) as page:
        wait_until_idle(page)
        page.get_by_role("spinbutton", name="town").fill("4")
        wait_until_idle(page)
        code = page.locator("#try .snippet pre").first.inner_text()
        np.testing.assert_allclose(run_curl(code)["outputs"][0]["data"], page.evaluate(ANSWER), rtol=1e-6)
        assert '"data": [4, 0.5, 0.5, 0.5]' in code
        upload(page, "rows.csv", b"town,a,b,c\nParis,1,1,1\n", "Open .csv…")
        expect(page.get_by_text("since the model does not publish the words of this column")).to_be_visible()


def test_lesions_work_on_rows_with_blanks(fruit: Page) -> None:
    """Their code would need a binary body, and the page says so."""
    from playwright.sync_api import expect

    fill(fruit, blank=True)
    before = fruit.evaluate(ANSWER)
    fruit.evaluate(SET_LAYER_STATE, [1, "closed"])
    expect(fruit.locator("#try .prediction .note")).to_contain_text("With layer 1 closed")
    assert fruit.evaluate(ANSWER) != before
    expect(fruit.get_by_text("This row has a blank.")).to_be_visible()
    expect(fruit.locator("#try .snippet").first).to_be_hidden()


def test_the_page_opens_on_the_least_certain_sample(fruit: Page, server: Server) -> None:
    """Samples with blanks are among them."""
    share = float(fruit.locator("#try .headline .share").inner_text().rstrip(" %"))
    samples = server.get("/v2/models/fruit/samples").json()["samples"]
    assert any(None in sample["inputs"][0]["data"] for sample in samples)
    shares: list[float] = []
    for sample in samples:
        fruit.locator("#try .samples button").nth(len(shares)).click()
        wait_until_idle(fruit)
        logits = np.array(fruit.evaluate(ANSWER))
        shares.append(1 / np.exp(logits - logits.max()).sum())
        got = np.array(fruit.evaluate(CURRENT_ROW)[0]["data"], float)
        np.testing.assert_allclose(got, np.array(sample["inputs"][0]["data"], float), rtol=1e-6)
    assert share == pytest.approx(100 * min(shares), abs=0.06)
    assert max(shares) - min(shares) > 0.01


def test_a_number_is_typical_of_the_samples(price: Page, server: Server) -> None:
    """The page of a predicted number opens on the median answer."""
    (opening,) = price.evaluate(ANSWER)
    samples = server.get("/v2/models/price/samples").json()["samples"]
    answers = []
    for number in range(len(samples)):
        price.locator("#try .samples button").nth(number).click()
        wait_until_idle(price)
        answers.append(price.evaluate(ANSWER)[0])
    assert opening == sorted(answers)[(len(answers) - 1) // 2]


def test_a_file_of_cells_is_scored(fruit: Page, server: Server) -> None:
    """The table shows the cells as they came, and a chosen row fills the form."""
    from playwright.sync_api import expect

    rows = [["7", "", "blue", "4,5%", "51,25", "1.2.2017"], ["8", "no", "?!", "10%", "", ""]]
    text = "\n".join(";".join(row) for row in [["id", "member", "color", "rate", "mass [kg]", "day"], *rows])
    upload(fruit, "rows.csv", text.encode(), "Open .csv…")
    wait_for_prediction(fruit, "rows.csv, row 1")
    for n, row in enumerate(rows):
        shown = fruit.get_by_role("row", name=f"Row {n + 1}").get_by_role("cell").all_inner_texts()
        cells = dict(zip(HEADER, (row[4], row[3], row[2], row[1], row[5]), strict=True))
        answer = predicted(server, "fruit", cells)
        assert shown == [answer["label"], f"{100 * answer['probability']:.1f} %", *row]
    fruit.get_by_role("button", name="Row 2").click()
    wait_for_prediction(fruit, "rows.csv, row 2")
    expect(fruit.get_by_role("spinbutton", name="mass [kg]")).to_have_value("")
    expect(fruit.get_by_role("combobox", name="color").locator("option:checked")).to_have_text("another word")
    expect(fruit.get_by_role("combobox", name="member").locator("option:checked")).to_have_text("false")
    with fruit.expect_download() as download:
        fruit.get_by_role("link", name="Download scored rows").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        assert [line[:6] for line in list(csv.reader(file))[1:]] == rows

    upload(fruit, "bad.csv", text.replace("51,25", "heavy").encode(), "Open .csv…")
    message = 'bad.csv: line 2, column "mass [kg]": expected a number with a decimal comma, got "heavy"'
    expect(fruit.get_by_text(message)).to_be_visible()


def test_a_predicted_number_is_shown_with_its_name(price: Page, server: Server) -> None:
    """Without bars of classes, on the road, in the scored table and beside a lesion."""
    from playwright.sync_api import expect

    cells = fill(price)
    value = predicted(server, "price", cells)["value"]
    text = f"{value:.5g}".replace("-", MINUS)
    expect(price.locator("#try .headline .label")).to_have_text(text)
    expect(price.locator("#try .headline .share")).to_have_text("price")
    expect(price.locator("#try .classes, #try .plain-output")).to_have_count(0)
    expect(price.locator("#try .road .answer")).to_have_text(text)
    expect(price.locator("p.row-title strong")).to_have_text(f"price: {text}")

    price.evaluate(SET_LAYER_STATE, [1, "closed"])
    note = price.locator("#try .prediction .note")
    expect(note).to_have_text(
        re.compile(rf"^With layer 1 closed, price is .+ instead of {re.escape(text)}\.$")
    )
    expect(price.locator("p.effect")).to_contain_text(f"as trained: price: {text}.")
    wait_until_idle(price)
    assert axe_violations(price) == []
    price.get_by_role("button", name="Reset layers").first.click()

    row = "50,5;4,25%;green;yes;01.03.2018\n"
    upload(price, "rows.csv", (";".join(HEADER) + "\n" + row).encode(), "Open .csv…")
    wait_for_prediction(price, "rows.csv, row 1")
    expect(price.locator("#try .scored thead")).to_contain_text("predicted price")
    expect(price.get_by_role("row", name="Row 1").get_by_role("cell").nth(1)).to_have_text("50,5")


def test_a_predicted_number_is_shown_with_its_interval(dashboard: OpenDashboard, server: Server) -> None:
    """Below the number and in the scored table; not beside a lesion, whose errors are others."""
    from playwright.sync_api import expect

    with dashboard(server.url, path=model_path("wide")) as page:
        wait_until_idle(page)
        (value,) = page.evaluate(ANSWER)
        low, high = (f"{bound:.5g}".replace("-", MINUS) for bound in (value - 250, value + 250))
        shown = page.locator("#try .prediction .interval")
        expect(shown).to_have_text(f"{low} to {high} in 90 % of such rows")
        assert axe_violations(page) == []
        page.evaluate(SET_LAYER_STATE, [1, "closed"])
        expect(shown).to_have_count(0)
        page.get_by_role("button", name="Reset layers").first.click()

        upload(page, "rows.csv", b"a,b,c,d\n0,0,0,0\n", "Open .csv…")
        wait_for_prediction(page, "rows.csv, row 1")
        answer = server.post("/v1/models/wide:predict", {"instances": [[0, 0, 0, 0]]}).json()["predictions"][
            0
        ]
        cells = page.get_by_role("row", name="Row 1").get_by_role("cell").all_inner_texts()
        numbers = [float(cell.replace(MINUS, "-")) for cell in cells[:3]]
        assert numbers == [float(f"{answer[name]:.5g}") for name in ("value", "low", "high")]


def test_gates_of_a_predicted_number_have_r2(price: Page, server: Server) -> None:
    """And the mean absolute error, in the place of accuracy and cross entropy."""
    from playwright.sync_api import expect

    lesion = server.get("/v2/models/price/gates/profile").json()["lesion"]
    open_tab(price, "Gates")
    wait_until_idle(price)
    gates = price.locator("#gates")
    r2 = f"{lesion['accuracy']:.3f}".replace("-", MINUS)
    expect(gates).to_contain_text(f"With all layers as trained: {r2}.")
    for title in ("Lesion curve: R²", "Lesion curve: mean absolute error"):
        expect(gates.get_by_text(title, exact=True)).to_be_visible()
    expect(gates).not_to_contain_text(re.compile("accuracy|cross entropy", re.IGNORECASE))


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "dark"), [(1400, True), (390, False)])
def test_the_form_fits_the_window(dashboard: OpenDashboard, server: Server, width: int, dark: bool) -> None:
    with dashboard(server.url, width=width, dark=dark, path=model_path("fruit")) as page:
        wait_until_idle(page)
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
