"""Warnings of cells that the training of a model did not have: in answers, and counted in the metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.asgi import Reply
from tests.support.cell_tables import FEATURES, ROWS
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment

GOOD = {name: cell for name, cell in ROWS[0].items() if name != "id"}
SIZE = {"row": 1, "column": "size", "value": 9.5, "what": "outside of training's range, -3 to 3"}
COLOR = {"row": 1, "column": "color", "value": "blue", "what": "a word that training has not seen"}
DAY = {
    "row": 2,
    "column": "day",
    "value": "31.12.1969",
    "what": "outside of training's range, 1970-01-01 to 1970-01-04",
}


@pytest.fixture
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    file = put_model(
        tmp_path_factory.mktemp("cells"), data=with_manifest(highway(blanks=True), features=FEATURES)
    )
    worker = InProcessWorker(Settings(threads=1))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))
    assert not committed["failed"]
    return worker


def ask(worker: InProcessWorker, body: bytes, headers: Mapping[str, object] | None = None) -> list[Reply]:
    """The answer to a body, and the metrics after it."""
    replies: list[Reply] = []

    async def ask_supervisor(_: str) -> Any:
        return [await worker.app.handlers["snapshot"](None)]

    async def scene(worker: InProcessWorker) -> None:
        # the counters of this worker are those of all
        vars(worker.app.context.supervisor)["ask"] = ask_supervisor
        client = worker.connect()
        replies.append(await client.ask(request("/v1/models/net:predict", body, headers)))
        replies.append(await client.ask(request("/metrics", method="GET")))

    run_scene(worker, scene)
    return replies


def answers(worker: InProcessWorker, *rows: Any) -> Any:
    body = json.dumps({"instances": list(rows)}).encode()
    return json.loads(ask(worker, body)[0].body)


def counted(metrics: Reply) -> dict[str, float]:
    return {
        sample.labels["kind"]: sample.value
        for family in text_string_to_metric_families(metrics.body.decode())
        for sample in family.samples
        if sample.name == "turnpike_model_input_warnings_total"
    }


def test_a_word_that_is_almost_known_is_a_question(worker: InProcessWorker) -> None:
    rows = [GOOD | {"color": word} for word in ("Red", " r e d", "rad", "4")]
    what = [warning["what"] for warning in answers(worker, *rows)["warnings"]]
    unseen = "a word that training has not seen"
    assert what == [f"{unseen} (did you mean 'red'?)"] * 2 + [unseen] * 2


def test_new_cells_are_listed_row_by_row(worker: InProcessWorker) -> None:
    """Blanks, and values at the bounds of training, are not new."""
    rows = [GOOD, GOOD | {"size": 9.5, "color": "blue"}, GOOD | {"day": "31.12.1969"}]
    assert answers(worker, *rows)["warnings"] == [SIZE, COLOR, DAY]
    assert "more_warnings" not in answers(worker, *rows)
    known = [{"size": None, "color": "", "day": "04.01.1970", "ripe": 1}, GOOD | {"size": -3.0000001}]
    assert answers(worker, *known).keys() == {"predictions", "model", "version"}


def test_a_table_in_csv_has_warnings_too(worker: InProcessWorker) -> None:
    table = b"ripe,day,size,color\n1,01.01.1970,1,red\n1,01.01.1970,9.5,blue\n"
    answer = json.loads(ask(worker, table, {"Content-Type": "text/csv"})[0].body)
    assert answer["warnings"] == [SIZE | {"value": "9.5"}, COLOR]


def test_many_warnings_are_counted(worker: InProcessWorker) -> None:
    answer = answers(worker, *[GOOD | {"size": 7, "color": "x" * 200}] * 30)
    assert (len(answer["warnings"]), answer["more_warnings"]) == (20, 40)
    assert answer["warnings"][1]["value"] == "x" * 77 + "..."


def test_metrics_count_the_kinds(worker: InProcessWorker) -> None:
    body = json.dumps({"instances": [GOOD | {"size": 9, "color": "blue"}, GOOD | {"size": -9}]}).encode()
    assert counted(ask(worker, body)[1]) == {"outside_range": 2, "unseen_word": 1}
    assert counted(ask(worker, body)[1]) == {"outside_range": 4, "unseen_word": 2}
