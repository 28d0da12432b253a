"""CSV tables with further columns: those that the model ignores, and the one that it predicts."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.text_models import text_file
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.runtime import open_model
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment

FEATURES = tuple(Feature(name=name, low=-1, high=1, mean=0, sd=1) for name in ("ash", "fir", "oak", "elm"))
ROWS = np.random.default_rng(0).normal(size=(6, 4)).round(3).astype(np.float32)
PRICE = highway(classes=1, seed=3)
AS_CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    root = tmp_path_factory.mktemp("repository")
    price = with_manifest(PRICE, labels=(), features=FEATURES, task="number", target="price")
    files = {
        "kind": put_model(root, "kind", data=with_manifest(highway(), features=FEATURES, target="kind")),
        "price": put_model(root, "price", data=price),
        "texts": put_model(root, "texts", data=text_file()),
    }
    worker = InProcessWorker(Settings(threads=1))
    deployment = Deployment(1, {name: (file,) for name, file in files.items()})
    committed = asyncio.run(worker.app.registry.commit(deployment.to_json()))
    assert not committed["failed"]
    return worker


def post(worker: InProcessWorker, model: str, body: str, headers: Mapping[str, object] = AS_CSV) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        path = f"/v1/models/{model}:predict"
        replies.append(await worker.connect().ask(request(path, body.encode(), headers)))

    run_scene(worker, scene)
    assert replies[0].status == 200, replies[0].body
    return replies[0]


def table(name: str, values: Any) -> str:
    """The rows with a column of this name, and an id."""
    lines = [f"id,{name},ash,fir,oak,elm"]
    lines += [
        f"r{n},{value},{','.join(map(str, row))}"
        for n, (value, row) in enumerate(zip(values, ROWS.tolist(), strict=True))
    ]
    return "\n".join(lines)


def answer(worker: InProcessWorker, model: str, body: str) -> Any:
    return json.loads(post(worker, model, body).body)


def test_classes_have_an_accuracy(worker: InProcessWorker) -> None:
    """Over the rows with a value; other columns change no prediction."""
    plain = answer(worker, "kind", "\n".join(",".join(map(str, row)) for row in ROWS.tolist()))
    assert "summary" not in plain
    labels = [row["label"] for row in plain["predictions"]]
    wrong = "a" if labels[0] != "a" else "b"
    given = answer(worker, "kind", table("kind", [wrong, *labels[1:5], ""]))
    assert given == plain | {"summary": {"target": "kind", "rows": 5, "accuracy": 0.8}}
    assert answer(worker, "kind", table("sort", labels)) == plain
    empty = answer(worker, "kind", table("kind", [""] * 6))["summary"]
    assert empty == {"target": "kind", "rows": 0, "accuracy": None}


def test_numbers_have_r2_and_an_error(worker: InProcessWorker) -> None:
    predicted = open_model(PRICE.model).run({"x": ROWS}, ["logits"])[0].ravel().astype(float)
    wanted = np.array([5, 1, 2, 0, 3], float)
    summary = answer(worker, "price", table("price", [*wanted.tolist(), "unknown"]))["summary"]
    errors = wanted - predicted[:5]
    assert (summary["target"], summary["rows"]) == ("price", 5)
    assert summary["mae"] == pytest.approx(np.abs(errors).mean())
    assert summary["r2"] == pytest.approx(1 - (errors**2).sum() / ((wanted - wanted.mean()) ** 2).sum())
    assert answer(worker, "price", table("price", [7] * 6))["summary"]["r2"] is None
    empty = answer(worker, "price", table("price", [""] * 6))["summary"]
    assert empty == {"target": "price", "rows": 0, "r2": None, "mae": None}


def test_an_answer_in_csv_keeps_the_columns(worker: InProcessWorker) -> None:
    """As `turnpike predict` does."""
    reply = post(worker, "kind", table("label", "uvwxyz"), {**AS_CSV, "Accept": "text/csv"})
    rows = list(csv.DictReader(reply.body.decode().splitlines()))
    assert [row["id"] + row["label"] for row in rows] == [
        f"r{n}{letter}" for n, letter in enumerate("uvwxyz")
    ]
    labels = [row["label"] for row in answer(worker, "kind", table("label", "uvwxyz"))["predictions"]]
    assert [row["predicted label"] for row in rows] == labels


def test_texts_may_have_other_columns(worker: InProcessWorker) -> None:
    assert answer(worker, "texts", "id,text\n1,AB\n2,C\n") == answer(worker, "texts", "text\nAB\nC\n")
