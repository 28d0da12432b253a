"""Hooks in an application: over HTTP, every route of a model has the tensors of its hooks."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.support.grpc_worker import INFERENCE, grpc_worker
from tests.support.live_server import ROOT
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import profile, put_model, with_manifest
from tests.support.waiting import wait_until
from turnpike import Hooks, RowsError, Tensor, create_app, open_model, router
from turnpike.service.errors import SettingError
from turnpike.service.inference_types import Array

TABLE = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
INFER = "/v2/models/credit/infer"
PREDICT = "/v1/models/credit:predict"


def look_up(rows: dict[str, Array]) -> dict[str, Array]:
    """The features of customers."""
    ids = rows["customer_id"]
    if ids.max() >= len(TABLE):
        raise RowsError(f"customer {ids.max()} is unknown")
    if ids.min() < 0:
        raise RuntimeError("secret of the database")
    return {"x": TABLE[ids]}


def add_best(rows: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
    return {**outputs, "best": outputs["logits"].argmax(1)}


HOOKS = {
    "credit": Hooks(
        look_up,
        add_best,
        inputs=(Tensor("customer_id", "int64", ("batch",)),),
        outputs=(Tensor("best", "int64", ("batch",)),),
    )
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    put_model(root, "credit")
    put_model(root, "other")
    return root


@pytest.fixture(scope="module")
def client(repository: Path) -> Iterator[TestClient]:
    with TestClient(create_app(repository, hooks=HOOKS), raise_server_exceptions=False) as client:
        yield client


def body(*ids: int, **more: Any) -> dict[str, Any]:
    tensor = {"name": "customer_id", "shape": [len(ids)], "datatype": "INT64", "data": ids}
    return {"inputs": [tensor], **more}


def logits(repository: Path, *ids: int) -> Array:
    return open_model(repository / "credit/1/model.onnx").run({"x": TABLE[list(ids)]})[0]


def test_the_metadata_has_the_tensors_of_the_hooks(client: TestClient) -> None:
    metadata = client.get("/v2/models/credit").json()
    assert metadata["inputs"] == [{"name": "customer_id", "datatype": "INT64", "shape": [-1]}]
    assert [output["name"] for output in metadata["outputs"]] == ["logits", "best"]
    assert metadata["outputs"][1] == {"name": "best", "datatype": "INT64", "shape": [-1]}
    assert [tensor["name"] for tensor in client.get("/v2/models/other").json()["inputs"]] == ["x"]


def test_infer_takes_and_returns_them(client: TestClient, repository: Path) -> None:
    scores, best = client.post(INFER, json=body(3, 4)).json()["outputs"]
    np.testing.assert_allclose(scores["data"], logits(repository, 3, 4).ravel(), rtol=1e-6)
    assert best == {
        "name": "best",
        "datatype": "INT64",
        "shape": [2],
        "data": logits(repository, 3, 4).argmax(1).tolist(),
    }
    only = client.post(INFER, json=body(3, 4, outputs=[{"name": "best"}])).json()
    assert only["outputs"] == [best]
    wrong = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.0] * 4}]}
    refused = client.post(INFER, json=wrong)
    assert refused.status_code == 400
    assert "expected one of 'customer_id', got 'x'" in refused.json()["error"]


def test_requests_without_rows_run_no_hook(client: TestClient) -> None:
    answer = client.post(INFER, json=body()).json()
    assert [output["shape"] for output in answer["outputs"]] == [[0, 3], [0]]


def test_predict_takes_json_and_csv(client: TestClient, repository: Path) -> None:
    best = logits(repository, 3, 4).argmax(1).tolist()
    flat = client.post(PREDICT, json={"instances": [3, 4]}).json()["predictions"]
    named = client.post(PREDICT, json={"instances": [{"customer_id": 3}, {"customer_id": 4}]}).json()
    assert [prediction["outputs"]["best"] for prediction in flat] == best
    assert named["predictions"] == flat
    for text in ("customer_id\n3\n4\n", "3\n4\n"):
        headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
        answer = client.post(PREDICT, content=text, headers=headers)
        assert answer.status_code == 200, answer.text
        table = list(csv.DictReader(io.StringIO(answer.text)))
        assert [int(row["best"]) for row in table] == best


def test_gates_and_lesions_go_through_before(client: TestClient, repository: Path) -> None:
    path = "/v2/models/credit"
    gates = client.post(f"{path}/gates?detail=rows", json=body(3, 4)).json()
    (gate,) = [tensor for tensor in gates["tensors"] if tensor["name"] == "layer00.transform_gate"]
    model = open_model(repository / "credit/1/model.onnx")
    (expected,) = model.run({"x": TABLE[[3, 4]]}, ["layer00.transform_gate"])
    np.testing.assert_allclose(gate["data"], expected.ravel(), rtol=1e-5)
    assert [output["name"] for output in gates["outputs"]] == ["logits", "best"]
    assert "gates" in client.post(f"{path}/gates", json=body(3, 4)).json()
    # another model with the same file, and no hooks
    plain = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": TABLE[3].tolist()}]}
    assert "gates" in client.post("/v2/models/other/gates", json=plain).json()

    lesion = client.post(f"{path}/lesion", json=body(3, 4, close=[0, 1, 2]))
    assert lesion.status_code == 200, lesion.text
    before, after = lesion.json(), lesion.json()["lesioned"]
    assert before["outputs"][0]["data"] != after["outputs"][0]["data"]
    assert after["outputs"][1]["name"] == "best"
    assert before["lesion"]["rows"] == 2
    assert client.post(f"{path}/lesion", json=body(3, curve=True)).status_code == 200


def test_facts_about_the_file_are_served(client: TestClient) -> None:
    assert client.get("/v2/models/credit/samples").json()["samples"] == []
    assert client.get("/v2/models/credit/certificate").json()["verified"] is True
    assert client.get("/v2/models/credit/config").json()["input"][0]["name"] == "customer_id"


def test_rows_at_fault_are_named_to_the_client(client: TestClient) -> None:
    answer = client.post(INFER, json=body(3, 117))
    assert (answer.status_code, answer.json()) == (400, {"error": "customer 117 is unknown"})


def test_another_exception_is_logged_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """With its traceback. The client gets the request id alone."""
    with caplog.at_level(logging.WARNING):
        answer = client.post(INFER, json=body(-1), headers={"X-Request-Id": "one-two"})
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error, request id one-two"})
    assert caplog.text.count("RuntimeError: secret of the database") == 1
    assert caplog.text.count("request one-two failed") == 1
    assert "credit/1: the hook before failed" in caplog.text
    assert "in look_up" in caplog.text


def test_a_router_has_hooks_too(repository: Path) -> None:
    app = FastAPI()
    app.include_router(router(repository, hooks=HOOKS), prefix="/models")
    with TestClient(app) as client:
        answer = client.post(f"/models{PREDICT}", json={"instances": [3]})
        assert answer.json()["predictions"][0]["outputs"]["best"] == int(logits(repository, 3).argmax())


def test_drift_is_of_the_rows_of_the_network(tmp_path: Path) -> None:
    """The monitor sees the gates of what `before` returned."""
    gated = highway()
    put_model(tmp_path, "credit", data=with_manifest(gated, profile=profile(gated)))
    with TestClient(create_app(tmp_path, hooks=HOOKS)) as client:
        assert client.post(INFER, json=body(3, 4)).status_code == 200
        assert client.get("/v2/models/credit/gates/drift").json()["rows"] == 2


def test_grpc_follows_the_hooks(repository: Path) -> None:
    async def play() -> None:
        path = repository / "credit/1/model.onnx"
        async with grpc_worker(name="credit", path=path, hooks=HOOKS) as worker:
            metadata = await worker.call(INFERENCE, "ModelMetadata", name="credit")
            assert [(tensor.name, list(tensor.shape)) for tensor in metadata.inputs] == [
                ("customer_id", [-1])
            ]
            assert [tensor.name for tensor in metadata.outputs] == ["logits", "best"]

            def infer(customer: int) -> Any:
                tensor = {
                    "name": "customer_id",
                    "datatype": "INT64",
                    "shape": [1],
                    "contents": {"int64_contents": [customer]},
                }
                return worker.call(INFERENCE, "ModelInfer", model_name="credit", inputs=[tensor])

            answer = await infer(3)
            assert [output.name for output in answer.outputs] == ["logits", "best"]
            assert answer.outputs[1].contents.int64_contents == [logits(repository, 3).argmax()]
            assert await worker.refused(infer(117)) == ("INVALID_ARGUMENT", "customer 117 is unknown")
            code, message = await worker.refused(infer(-1))
            assert (code, message.split(" id ")[0]) == ("INTERNAL", "internal error, request")

    asyncio.run(play())


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (
            HOOKS["credit"],
            "hooks: expected a dict by the names of models, such as .*, got an object of Hooks",
        ),
        (look_up, "hooks: expected a dict .*, got the function look_up"),
        ({"credit": look_up}, "hooks: credit: expected turnpike.Hooks, .*, got the function look_up"),
        ({3: HOOKS["credit"]}, "hooks: expected names of models, .*, got 3"),
    ],
)
def test_other_things_than_hooks_are_refused(hooks: Any, message: str, repository: Path) -> None:
    for make in (create_app, router):
        with pytest.raises(SettingError, match=message):
            make(repository, hooks=hooks)


def test_hooks_for_a_model_that_is_not_bundled_are_refused() -> None:
    """None can come later."""
    message = r"hooks: expected the name of a model \(digits-10\), got 'digit-10'; did you mean 'digits-10'\?"
    with pytest.raises(SettingError, match=message):
        create_app(hooks={"digit-10": Hooks(before=look_up)})


def test_the_answer_of_the_example_in_the_documentation_is_the_real_one() -> None:
    text = (ROOT / "docs/how-to/hooks.md").read_text(encoding="utf-8")
    code, shown = (text.split(f"```{kind}\n", 1)[1].split("```", 1)[0] for kind in ("python", "json"))
    names: dict[str, Any] = {}
    exec(code, names)
    with TestClient(names["app"]) as client:
        answer = client.post("/v1/models/digits-10:predict", json={"instances": [17]}).json()
        assert client.post("/v1/models/digits-10:predict", json={"instances": [18]}).json() == {
            "error": "picture 18 is unknown"
        }
    expected = json.loads(shown)
    (prediction,), (shown_prediction,) = answer.pop("predictions"), expected.pop("predictions")
    assert answer == expected
    assert prediction.pop("label") == shown_prediction.pop("label")
    for values, shown_values in (
        (prediction.pop("outputs"), shown_prediction.pop("outputs")),
        (prediction.pop("probabilities"), shown_prediction.pop("probabilities")),
        (prediction, shown_prediction),
    ):
        assert values.keys() == shown_values.keys()
        for name, value in shown_values.items():
            assert values[name] == pytest.approx(value, rel=1e-4)


def test_hooks_without_a_model_are_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A model of that name may come later, and then they run."""
    put_model(tmp_path, "other")
    with TestClient(create_app(tmp_path, hooks=HOOKS, poll=0.05)) as client:
        assert (
            "hooks: expected the name of a model (other), got 'credit'; these hooks run once" in caplog.text
        )
        put_model(tmp_path, "other", 2)
        wait_until(lambda: client.get("/v2/models/other").json()["versions"] == ["2"])
        put_model(tmp_path, "credit")
        wait_until(lambda: client.post(INFER, json=body(3)).status_code == 200)
    assert caplog.text.count("expected the name of a model") == 1
