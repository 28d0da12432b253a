"""What the dashboard says of an answer: classes and how sure it is, as it is and with layers closed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser import Opener, settled
from tests.gallery import LABELS
from tests.serving import Server
from tests.trying import WISH, took

pytestmark = pytest.mark.browser


def test_probabilities_are_those_of_the_service(dashboard: Opener, served: Server) -> None:
    """The page's bars say what `:predict` says."""
    sample = served.get("/v2/models/digits-10/samples").json()["samples"][4]
    body = {"instances": [sample["inputs"][0]["data"]]}
    told = served.post("/v1/models/digits-10:predict", body).json()["predictions"][0]["probabilities"]
    with dashboard(served.url) as page:
        page.get_by_role("button", name="sample: 4").click()
        took(page, "sample: 4")
        shares = page.evaluate(
            """async () => {
              const { current } = await import("/dashboard/store.js");
              const { probabilitiesOf } = await import("/dashboard/probabilities.js");
              return probabilitiesOf(current("model").certificate, current("reading").outputs);
            }"""
        )
        assert [one["label"] for one in shares] == list(told)
        assert [one["share"] for one in shares] == pytest.approx(list(told.values()), rel=1e-9)


def test_labels_of_strangers_are_text(dashboard: Opener, gallery: Server) -> None:
    """Markup in a label is shown as it is written, and does nothing."""
    with dashboard(gallery.url, path="/#model=pictures/1") as page:
        settled(page)
        shown = page.locator("#try .classes tbody th").all_inner_texts()
        assert shown == list(LABELS)
        assert page.title() != "owned"
        assert page.locator("main script, main img").count() == 0


def test_a_lesion_stands_beside_the_prediction(dashboard: Opener, served: Server) -> None:
    """As it is and as changed, in figures, in bars and in words that are read out."""
    from playwright.sync_api import expect

    sample = served.get("/v2/models/digits-10/samples").json()["samples"][5]
    body = {"inputs": sample["inputs"], "close": [0, 1]}
    after = served.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0]["data"]
    shares = np.exp(np.array(after) - max(after))
    share = 100 * (shares / shares.sum())[np.argmax(after)]
    plain = {"instances": [sample["inputs"][0]["data"]]}
    before = served.post("/v1/models/digits-10:predict", plain).json()["predictions"][0]["label"]
    with dashboard(served.url) as page:
        page.get_by_role("button", name="sample: 5").click()
        took(page, "sample: 5")
        heads = page.locator("#try .headline .label")
        expect(heads).to_have_text([before])
        page.evaluate(WISH, [0, "closed"])
        page.evaluate(WISH, [1, "closed"])
        expect(page.locator("#try .note")).to_contain_text("With layers 0, 1 closed it is")
        expect(heads).to_have_text([before, str(np.argmax(after))])
        text = page.locator("#try .headline .share").nth(1).inner_text()
        assert float(text.strip("<> %")) == pytest.approx(share, abs=0.11)
        expect(page.locator("#try .prediction > [role=status]")).to_contain_text("With layers 0, 1 closed")
        assert page.locator("#try .share-bar.after").count() == 10
        # another row has no lesion before it has been asked for
        page.evaluate(WISH, [0, "as is"])
        page.evaluate(WISH, [1, "as is"])
        expect(heads).to_have_text([before])
