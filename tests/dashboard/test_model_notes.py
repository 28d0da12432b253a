"""What the page says of a model besides its answers: random weights, what is predicted, and known words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import OpenDashboard
from tests.support.dashboard_try import CURRENT_ROW, wait_for_prediction
from tests.support.live_server import Server, serving
from tests.support.manifests import stored_input
from tests.support.text_models import text_file, text_input
from tests.support.tiny_repository import put_model
from turnpike.service.artifact.manifest import Sample
from turnpike.service.artifact.text_records import Vocabulary

pytestmark = pytest.mark.browser

WORDS = Vocabulary(tokens=("<pad>", "<unk>", "good", "film", "not", "a"), unknown=1, lower=True)


def sample(label: str, text: str, ids: list[int]) -> Sample:
    return Sample(label=label, text=text, inputs=(stored_input("ids", ids),))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a network of words that was not trained."""
    root = tmp_path_factory.mktemp("notes")
    fields: dict[str, Any] = {
        "text": text_input("words", 4, 1, vocabulary=WORDS),
        "alphabet": "",
        "labels": ("0", "1", "2"),
        "target": "mood",
        "random_weights": True,
        "samples": (
            sample("0", "good film", [2, 3, 0, 0]),
            sample("1", "a", [5, 0, 0, 0]),
            sample("0", "not", [4, 0, 0, 0]),
        ),
    }
    put_model(root, "words", data=text_file(("words",), **fields))
    with serving("--models", root, "--no-access-log") as server:
        yield server


def test_random_weights_are_as_large_as_the_proof(dashboard: OpenDashboard, server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(server.url) as page:
        note = page.locator("#try .note").first
        expect(note).to_contain_text("Random weights. This network was not trained")
        expect(note).to_contain_text("--weights FILE")
        page.get_by_role("link", name="Models").click()
        signs = page.locator("#models .verdict strong")
        expect(signs.first).to_have_text("Random weights")
        sizes = signs.evaluate_all("signs => signs.map((sign) => getComputedStyle(sign).fontSize)")
        assert len(sizes) == 2
        assert len(set(sizes)) == 1


def test_what_is_predicted_has_its_name(dashboard: OpenDashboard, server: Server) -> None:
    """Samples of the same class have titles of their own, and one is marked."""
    from playwright.sync_api import expect

    with dashboard(server.url) as page:
        page.get_by_role("button", name="sample 3, mood 0").click()
        wait_for_prediction(page, "sample 3, mood 0")
        expect(page.locator("#try .headline")).to_contain_text("mood")
        expect(page.get_by_role("heading", name="Samples, by mood")).to_be_visible()
        pressed = page.locator(".sample[aria-pressed=true]")
        expect(pressed).to_have_count(1)
        expect(pressed).to_have_attribute("title", "sample 3, mood 0")


def test_words_that_are_not_known_are_named(dashboard: OpenDashboard, server: Server) -> None:
    """The answer is that of the ids by the vocabulary."""
    from playwright.sync_api import expect

    with dashboard(server.url) as page:
        field = page.get_by_role("textbox", name="Text, the first 4 words are read")
        field.fill("NOT a bad film at all")
        wait_for_prediction(page, "text")
        expect(page.locator("#text-notes")).to_have_text(
            "Read as <unk>: bad at all. Only the first 4 words are read."
        )
        (row,) = page.evaluate(CURRENT_ROW)
        assert row["data"] == ["NOT a bad film at all"]
        body = {"instances": [[4, 5, 1, 3]]}
        (expected,) = server.post("/v1/models/words:predict", body).json()["predictions"]
        expect(page.locator("#try .headline .label")).to_have_text(expected["label"])
        page.get_by_text("Known words: 4").click()
        expect(page.locator(".letters")).to_have_text("good film not a")
        page.get_by_role("button", name="Random text").click()
        wait_for_prediction(page, "random text")
        expect(page.locator("#text-notes")).to_have_text("")
