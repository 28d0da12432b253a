"""Calls that run no model: their answers are those of the routes of HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.support.grpc_worker import INFERENCE, GrpcWorker, grpc_worker, infer_request
from tests.support.in_process_worker import MODEL_FILE
from tests.support.infer_messages import as_json, with_texts
from tests.support.text_models import text_file
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile, file_identity

NAME = "digits-10"
ROW = [[[[0.0] * 8] * 8]]


class OneWorker:
    """A supervisor whose only worker is the one of the test, once it is there."""

    worker: GrpcWorker

    async def ask(self, what: str, argument: Any = None) -> Any:
        assert what == "snapshots"
        return [await self.worker.app.snapshot()]


def compare(method: str, route: tuple[str, str], fields: dict[str, Any]) -> tuple[Any, Any]:
    """The answer of a call, and that of a route, of the same worker after some requests."""
    supervisor = OneWorker()
    answers: list[Any] = []

    async def scene() -> None:
        async with grpc_worker(supervisor) as worker:
            supervisor.worker = worker
            for name in (NAME, NAME, "absent"):
                infer = worker.method(INFERENCE, "ModelInfer")(infer_request(ROW, name=name))
                await (worker.refused(infer) if name == "absent" else infer)
            answers.append(as_json(await worker.call(INFERENCE, method, **fields)))
            answers.append(await worker.http(*route))

    asyncio.run(scene())
    return answers[0], answers[1]


@pytest.mark.parametrize("version", ["", "1"])
def test_metadata_is_that_of_http(version: str) -> None:
    path = f"/v2/models/{NAME}" + (f"/versions/{version}" if version else "")
    message, json = compare("ModelMetadata", ("GET", path), {"name": NAME, "version": version})
    for tensor in message["inputs"] + message["outputs"]:
        assert tensor.pop("parameters") == {}
    assert message == json


def test_the_server_describes_itself_as_over_http() -> None:
    message, json = compare("ServerMetadata", ("GET", "/v2"), {})
    assert message == json
    assert "binary_tensor_data" in message["extensions"]


def test_the_configuration_is_that_of_http() -> None:
    message, json = compare("ModelConfig", ("GET", f"/v2/models/{NAME}/config"), {"name": NAME})
    assert message["config"] == json
    assert json["input"][0]["data_type"] == "TYPE_FP32"


def test_a_model_of_texts_says_so_and_takes_them(tmp_path: Path) -> None:
    """In metadata and configuration. Texts get the answers that they get over HTTP."""
    path = tmp_path / "model.onnx"
    path.write_bytes(text_file())
    texts = ["AB C", "é", "unknown"]

    async def scene() -> None:
        async with grpc_worker(name="texts", path=path) as worker:
            metadata = await worker.call(INFERENCE, "ModelMetadata", name="texts")
            assert metadata.inputs[0].parameters["text"].bool_param is True
            config = as_json(await worker.call(INFERENCE, "ModelConfig", name="texts"))["config"]
            assert config == await worker.http("GET", "/v2/models/texts/config")
            assert config["parameters"] == {"text_input": {"string_value": "ids"}}
            body = orjson.dumps(
                {"inputs": [{"name": "ids", "datatype": "BYTES", "shape": [3], "data": texts}]}
            )
            record = await worker.http("POST", "/v2/models/texts/infer", body)
            for typed in (False, True):
                request = with_texts(texts, (3,), typed=typed, model="texts")
                answer = await worker.method(INFERENCE, "ModelInfer")(request)
                numbers = (
                    answer.outputs[0].contents.fp32_contents
                    if typed
                    else np.frombuffer(answer.raw_output_contents[0], np.float32)
                )
                assert np.float32(record["outputs"][0]["data"]).tolist() == list(numbers)

    asyncio.run(scene())


@pytest.mark.parametrize("name", [NAME, ""])
def test_statistics_are_those_of_http(name: str) -> None:
    """Of one model, and of all."""
    path = f"/v2/models/{NAME}/stats" if name else "/v2/models/stats"
    message, json = compare("ModelStatistics", ("GET", path), {"name": name})
    assert message == json
    (entry,) = message["model_stats"]
    assert entry["inference_count"] == 2
    assert entry["inference_stats"]["success"]["ns"] > 0
    assert sum(size["compute_input"]["count"] for size in entry["batch_stats"]) == 2


def test_the_index_is_that_of_http() -> None:
    message, json = compare("RepositoryIndex", ("POST", "/v2/repository/index"), {"ready": True})
    assert message["models"] == json == [{"name": NAME, "version": "1", "state": "READY", "reason": ""}]


def test_the_index_of_ready_models_leaves_out_the_others(tmp_path: Path) -> None:
    """Here a file that is no model."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    broken = ModelFile("broken", 1, path, file_identity(path.stat()))
    served = ModelFile(NAME, 1, MODEL_FILE, file_identity(MODEL_FILE.stat()))

    async def scene() -> None:
        async with grpc_worker() as worker:
            await worker.app.registry.commit(Deployment(2, {NAME: (served,), "broken": (broken,)}).to_json())
            for ready, states in ((True, {NAME: "READY"}), (False, {NAME: "READY", "broken": "UNAVAILABLE"})):
                models = (await worker.call(INFERENCE, "RepositoryIndex", ready=ready)).models
                assert {model.name: model.state for model in models} == states
                assert all(model.reason for model in models if model.state == "UNAVAILABLE")

    asyncio.run(scene())


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("absent", "", "model 'absent': expected a model that is served, as /v2/models lists them"),
        (NAME, "7", f"model '{NAME}' version '7': expected a version that is served, one of 1"),
        (NAME, "../1", f"model '{NAME}' version '../1': expected a version that is served, one of 1"),
    ],
)
def test_what_there_is_not_is_not_found(method: str, name: str, version: str, text: str) -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.call(INFERENCE, method, name=name, version=version)
            assert await worker.refused(call) == ("NOT_FOUND", text)

    asyncio.run(scene())


def test_a_server_that_drains_is_live_but_not_ready() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            assert (await worker.call(INFERENCE, "ServerLive")).live
            assert (await worker.call(INFERENCE, "ServerReady")).ready
            worker.app.draining = True
            assert (await worker.call(INFERENCE, "ServerLive")).live
            assert not (await worker.call(INFERENCE, "ServerReady")).ready

    asyncio.run(scene())
