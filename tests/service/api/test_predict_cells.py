"""Rows of cells over HTTP, and by `turnpike predict`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature
from turnpike.service.cli.prediction_source import local_model
from turnpike.service.cli.table_file import read_rows
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment

FEATURES = (
    Feature(name="size", low=-3, high=3, mean=0, sd=1, decimal_comma=True),
    Feature(name="color", low=0, high=1, mean=0, sd=1, kind="category", categories=("red", "3")),
    Feature(name="day", low=0, high=3, mean=0, sd=1, kind="date"),
    Feature(name="ripe", low=0, high=1, mean=0, sd=1, kind="boolean"),
)
NUMBERS = [[1.5, 1, 2, 1], [-1, 2, 0, 0]]
CELLS = [["1,5", 3, "1970-01-03", True], [-1, "blue", "1970-01-01", "no"]]
TABLE = 'note,day,color,size,ripe\nx,1970-01-03,3,"1,5",yes\ny,1970-01-01,blue,-1,no\n'
OWN_TABLE = 'day,color,size,ripe\n1970-01-03,3,"1,5",yes\n1970-01-01,blue,-1,no\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put_model(tmp_path_factory.mktemp("cells"), data=with_manifest(highway(), features=FEATURES)).path


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    file = put_model(tmp_path_factory.mktemp("served"), data=with_manifest(highway(), features=FEATURES))
    worker = InProcessWorker(Settings(threads=1))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))
    assert not committed["failed"]
    return worker


def post(
    worker: InProcessWorker,
    body: bytes,
    headers: Mapping[str, object] | None = None,
    action: str = ":predict",
) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        path = f"/v1/models/net{action}" if action == ":predict" else f"/v2/models/net{action}"
        replies.append(await worker.connect().ask(request(path, body, headers)))

    run_scene(worker, scene)
    return replies[0]


def test_cells_give_the_answers_of_their_numbers(
    worker: InProcessWorker, model: Path, tmp_path: Path
) -> None:
    tensor = {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": NUMBERS}
    (output,) = json.loads(post(worker, json.dumps({"inputs": [tensor]}).encode(), action="/infer").body)[
        "outputs"
    ]
    by_tensor = np.reshape(output["data"], output["shape"])

    by_cells = post(worker, json.dumps({"instances": CELLS}).encode())
    assert by_cells.status == 200
    by_csv = post(worker, OWN_TABLE.encode(), {"Content-Type": "text/csv"})
    assert json.loads(by_csv.body) == json.loads(by_cells.body)

    table = tmp_path / "rows.csv"
    table.write_text(TABLE)
    signature, predict = local_model(model)
    rows, others = read_rows(table, signature)
    predictions = predict(rows, False)[0]
    assert others == {"note": ["x", "y"]}
    assert predictions == json.loads(by_cells.body)["predictions"]
    best = [list(row["probabilities"]).index(row["label"]) for row in predictions]
    assert best == by_tensor.argmax(1).tolist()


def test_tensors_may_have_nan_in_binary(worker: InProcessWorker) -> None:
    """It stands for a blank, and JSON has no such number."""
    raw = np.array([[np.nan, 1, 2, 1]], "<f4").tobytes()
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(raw)}}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    reply = post(worker, head + raw, headers, action="/infer")
    # the network ran: without preprocessing, its outputs are NaN, which JSON cannot have
    assert reply.status == 422
    assert b"'logits' has NaN" in reply.body
    in_json = json.dumps({"inputs": [tensor | {"data": [float("nan"), 1, 2, 1]}]}).encode()
    assert post(worker, in_json, action="/infer").status == 400
    assert post(worker, b'{"instances": [[NaN, "3", "1970-01-01", 1]]}').status == 400
