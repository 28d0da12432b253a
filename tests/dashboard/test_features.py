"""Rows of a table: a field and a slider for each feature, and CSV files that are scored."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, wait_until_idle
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.dashboard_try import CURRENT_ROW, run_curl, run_python, upload, wait_for_prediction
from tests.support.live_server import Server, serving
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FEATURES = (
    Feature(name="mass", unit="kg", low=0, high=4, mean=1.25, sd=1),
    Feature(name="a, b", unit="b", low=-1, high=1, mean=0, sd=5),
    Feature(name=MARKUP, unit="<i>m</i>", low=1000, high=3000, mean=2000, sd=100),
    Feature(name="same", low=2, high=2, mean=2, sd=0),
)
X = np.array([[1, 0.5, 1500, 2], [3.5, -1, 2500, 2], [0.25, 0.125, 1000, 2]])
# columns in another order, and one that the model does not have
HEADER = ["id", "same", MARKUP, "a, b", "mass"]
TABLE = [HEADER, *([f"row, {n}", *map(str, row[::-1])] for n, row in enumerate(X.tolist()))]


def csv_of(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a model of a table."""
    root = tmp_path_factory.mktemp("table")
    put_model(root, "table", data=with_manifest(highway(), features=FEATURES, labels=LABELS))
    with serving("--models", root, "--no-access-log") as server:
        yield server


@pytest.fixture(scope="module")
def page(dashboard: OpenDashboard, server: Server) -> Iterator[Page]:
    with dashboard(server.url) as page:
        yield page


def features() -> list[dict[str, Any]]:
    return [feature.model_dump() for feature in FEATURES]


def values(page: Page) -> Any:
    (row,) = page.evaluate(CURRENT_ROW)
    return row["data"]


def test_a_unit_is_shown_once(page: Page) -> None:
    """It is added to the name unless it stands there already."""
    from playwright.sync_api import expect

    names = ["mass kg", "a, b", f"{MARKUP} <i>m</i>", "same"]
    expect(page.locator("#try .feature-name")).to_have_text(names)


@pytest.mark.parametrize("form", ["feature-list", "feature-list with-blanks"])
def test_fields_show_all_digits(dashboard: OpenDashboard, server: Server, form: str) -> None:
    """Forms with buttons for blanks have narrower fields."""
    with dashboard(server.url) as page:
        wait_for_prediction(page, "mean row")
        page.locator(".feature-list").evaluate("(list, form) => { list.className = form; }", form)
        field = page.get_by_role("spinbutton", name="a, b")
        field.fill("-0.08915")
        # room for the arrows is taken while the pointer is over the field
        field.hover()
        assert field.evaluate("(input) => input.scrollWidth - input.clientWidth") <= 0


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_a_row_is_made_with_sliders(dashboard: OpenDashboard, server: Server, width: int, dark: bool) -> None:
    """It begins with the means; slider and field follow each other."""
    from playwright.sync_api import expect

    with dashboard(server.url, width=width, dark=dark) as page:
        wait_for_prediction(page, "mean row")
        assert values(page) == [1.25, 0, 2000, 2]
        field = page.get_by_role("spinbutton", name="mass kg")
        slider = page.get_by_role("slider", name="mass, 0 to 4 kg")
        expect(slider).to_have_value("1.25")
        slider.fill("3")
        wait_for_prediction(page, "typed row")
        expect(field).to_have_value("3")
        field.fill("0.5")
        expect(slider).to_have_value("0.5")
        assert values(page) == [0.5, 0, 2000, 2]
        field.fill("")
        expect(page.get_by_text("mass: expected a number")).to_be_visible()
        page.get_by_role("button", name="Random row").click()
        wait_for_prediction(page, "random row")
        wait_until_idle(page)
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_snippets_name_the_features(dashboard: OpenDashboard, server: Server) -> None:
    """They work as they are shown, whatever the names."""
    with dashboard(server.url) as page:
        wait_for_prediction(page, "mean row")
        page.locator("#try summary", has_text="Python").click()
        codes = page.locator("#try .snippet pre").all_inner_texts()
        answer = server.post("/v1/models/table:predict", {"instances": [[1.25, 0, 2000, 2]]}).json()
        assert '"mass": 1.25,\n    "a, b": 0,' in codes[0]
        for code, run in zip(codes, (run_curl, run_python), strict=True):
            assert MARKUP in code.replace("'\\''", "'")
            assert run(code)["predictions"] == answer["predictions"]


def test_a_long_file_is_scored_whole(dashboard: OpenDashboard, server: Server) -> None:
    """In several requests. Its rows are counted exactly, and the first of them are shown."""
    from playwright.sync_api import expect

    rows = [HEADER, *(TABLE[1 + number % 3] for number in range(10_001))]
    with dashboard(server.url) as page:
        wait_for_prediction(page, "mean row")
        upload(page, "rows.csv", csv_of(rows).encode(), "Open .csv…")
        expect(page.get_by_text("10,001 rows scored")).to_be_visible()
        expect(page.get_by_text("The first 8 of 10,001 rows")).to_be_visible()
        expect(page.locator("#try .scored tbody tr")).to_have_count(8)


def test_a_file_is_scored(dashboard: OpenDashboard, server: Server) -> None:
    """The scored table has all columns of the file and the predictions of the service, and rows to choose."""
    from playwright.sync_api import expect

    answer = server.post("/v1/models/table:predict", {"instances": X.tolist()}).json()["predictions"]
    with dashboard(server.url, accept_downloads=True) as page:
        wait_for_prediction(page, "mean row")
        upload(page, "rows.csv", csv_of(TABLE).encode(), "Open .csv…")
        wait_for_prediction(page, "rows.csv, row 1")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download scored rows").click()
        assert download.value.suggested_filename == "rows-scored.csv"
        with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == [*HEADER, "label", "probability", *(f"p_{label}" for label in LABELS)]
        assert [row[: len(HEADER)] for row in rows] == [
            [row[0], *(json.dumps(float(cell)) for cell in row[1:])] for row in TABLE[1:]
        ]
        for row, prediction in zip(rows, answer, strict=True):
            shares = prediction["probabilities"].values()
            assert row[len(HEADER)] == prediction["label"]
            assert [float(cell) for cell in row[len(HEADER) + 1 :]] == [prediction["probability"], *shares]

        # shown as beside the road
        shown = page.get_by_role("row", name="Row 1").get_by_role("cell").nth(1)
        expect(shown).to_have_text(page.locator("#try .headline .share").inner_text())
        page.get_by_role("button", name="Row 3").click()
        wait_for_prediction(page, "rows.csv, row 3")
        assert values(page) == X[2].tolist()
        expect(page.locator("#try .headline .label")).to_have_text(answer[2]["label"])
        wait_until_idle(page)
        assert axe_violations(page) == []
        # as wide as the section, and whole
        boxes = [page.locator(f"#try {name}").bounding_box() for name in (".try", ".scored", ".scored table")]
        outer, scored, table = [(box["x"], box["width"], box["height"]) for box in boxes if box]
        assert scored[:2] == outer[:2]
        assert table[2] <= scored[2]
        page.get_by_role("button", name="Numbers", exact=True).click()
        expect(page.locator("#try .scored")).to_have_count(0)
        page.get_by_role("button", name="Features", exact=True).click()
        expect(page.get_by_role("button", name="Row 3")).to_be_visible()

        upload(page, "bad.csv", b"1,2,3\n", "Open .csv…")
        expect(page.get_by_text("bad.csv: line 1: expected 4 columns, got 3")).to_be_visible()
        expect(page.get_by_role("link", name="Download scored rows")).to_have_count(0)


def test_a_cell_that_training_did_not_have_is_named(dashboard: OpenDashboard, server: Server) -> None:
    """The answer is a guess then; another row takes the note away."""
    from playwright.sync_api import expect

    feature = FEATURES[0]
    with dashboard(server.url) as page:
        note = page.locator("#try form .note")
        expect(note).to_be_hidden()
        page.get_by_role("spinbutton").first.fill("123456")
        expect(note).to_contain_text(f"Unlike the training: {feature.name}: 123,456 is above")
        assert axe_violations(page) == []
        page.get_by_role("button", name="Random row").click()
        expect(note).to_be_hidden()
