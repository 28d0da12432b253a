"""Predict routes for tables: rows by the names of features, and CSV in and out."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.artifact.manifest import Feature
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ModelFileError
from turnpike.service.repository.deployment import Deployment

NAMES = ("ash", "elm [m]", "fir", "oak")
FEATURES = tuple(Feature(name=name, low=-3, high=3, mean=0, sd=1) for name in NAMES)
X = np.random.default_rng(0).normal(size=(3, 4)).round(3)
PATH = "/v1/models/net:predict"
AS_CSV = {"Content-Type": "text/csv; charset=utf-8"}
TO_CSV = {"Accept": "text/csv"}
LISTS = json.dumps({"instances": X.tolist()}).encode()
OBJECTS = json.dumps({"instances": [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]}).encode()
TABLE = "\n".join(["oak,ash,elm [m],fir", *(f"{d},{a},{b},{c}" for a, b, c, d in X.tolist())]).encode()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    """A worker with a model that has features."""
    file = put_model(tmp_path_factory.mktemp("table"), data=with_manifest(highway(), features=FEATURES))
    worker = InProcessWorker(Settings(threads=1, max_rows=50, max_json=4000))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))
    assert not committed["failed"]
    return worker


def post(worker: InProcessWorker, body: bytes, headers: Mapping[str, object] | None = None) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        replies.append(await worker.connect().ask(request(PATH, body, headers)))

    run_scene(worker, scene)
    return replies[0]


def test_every_form_of_rows_gives_the_same_predictions(worker: InProcessWorker) -> None:
    """Lists, objects and CSV in; JSON and CSV out."""
    expected = json.loads(post(worker, LISTS).body)["predictions"]
    assert len(expected) == 3
    for body, headers in ((LISTS, {}), (OBJECTS, {}), (TABLE, AS_CSV)):
        reply = post(worker, body, headers)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert json.loads(reply.body)["predictions"] == expected
        reply = post(worker, body, {**headers, **TO_CSV})
        assert (reply.status, reply.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        table = list(csv.DictReader(reply.body.decode().splitlines()))
        assert [row["label"] for row in table] == [row["label"] for row in expected]
        for label in "abc":
            assert [float(row[f"p_{label}"]) for row in table] == [
                row["probabilities"][label] for row in expected
            ]


def test_predictions_may_have_the_form_of_earlier_versions(tmp_path: Path) -> None:
    """With the setting. A table in CSV is the same."""
    file = put_model(tmp_path, data=with_manifest(highway(), features=FEATURES))
    answers = []
    for bare in (False, True):
        worker = InProcessWorker(Settings(threads=1, old_predict=bare))
        asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))
        predictions = json.loads(post(worker, LISTS).body)["predictions"]
        answers.append((predictions, post(worker, LISTS, TO_CSV).body))
    (objects, table), (old_predict, bare_table) = answers
    labels = ("label", "probability", "probabilities")
    assert old_predict == [{name: row[name] for name in labels} for row in objects]
    assert bare_table == table


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (OBJECTS.replace(b"fir", b"firs"), TO_CSV, 400, "got 'firs'; did you mean 'fir'?"),
        (TABLE.replace(b"fir", b"firs"), AS_CSV, 400, "'fir' is missing; did you mean 'fir'?"),
        (TABLE, {}, 400, "body: expected valid JSON"),
        (LISTS, AS_CSV, 400, "body, line 1"),
        (b"1,2,3,4\n" * 51, AS_CSV, 400, "expected at most 50 rows (--max-rows)"),
        (b"1,2,3,4\n" * 501, AS_CSV, 413, "expected at most 4000 bytes of CSV (--max-json), got 4008"),
    ],
)
def test_errors_are_json(
    worker: InProcessWorker, body: bytes, headers: Any, status: int, message: str
) -> None:
    """They say where the fault is, and the worker goes on."""
    reply = post(worker, body, headers)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    assert message in json.loads(reply.body)["error"]
    assert post(worker, LISTS).status == 200


def test_features_must_fit_the_input(tmp_path: Path) -> None:
    """A file whose manifest names more columns than its graph has is not served."""
    file = put_model(tmp_path, data=with_manifest(highway(), features=FEATURES[:3]))
    with pytest.raises(ModelFileError, match="features: expected one input with 3 columns, got x:float32"):
        load_model(file)
