"""What Triton's own tests of its HTTP interface send (qa/L0_http/http_test.py), on a real server.

Statuses and values are those of Triton, except where a test says what Triton does. Messages are our own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from onnx import TensorProto

from tests.support.identity_models import put_identity
from tests.support.live_server import Server, serving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RAW = {"Inference-Header-Content-Length": "0"}
EIGHT = np.arange(8, dtype=np.float32).tobytes()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that return their inputs, which Triton's tests name after their tensors."""
    root = tmp_path_factory.mktemp("models")
    put_identity(root, "float32", "batch", "n")
    put_identity(root, "three-float32", "batch", "n", tensors=3)
    put_identity(root, "float16", "batch", "n", "m", dtype=TensorProto.FLOAT16)
    put_identity(root, "int64", "batch", "n", dtype=TensorProto.INT64)
    put_identity(root, "strings", "batch", "n", dtype=TensorProto.STRING)
    return root


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with serving("--models", repository, "--allow-unverified") as running:
        yield running


def infer(server: Server, model: str, body: Any, headers: dict[str, str] | None = None) -> requests.Response:
    url = f"{server.url}/v2/models/{model}/infer"
    if isinstance(body, dict):
        return requests.post(url, json=body, headers=headers, timeout=30)
    return requests.post(url, data=body, headers=headers, timeout=30)


def tensor(shape: list[int], data: Any, datatype: str = "FP32") -> dict[str, Any]:
    return {"name": "INPUT0", "shape": shape, "datatype": datatype, "data": data}


def tail(response: requests.Response) -> bytes:
    """The bytes after the JSON of an answer."""
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/octet-stream"
    return response.content[int(response.headers["Inference-Header-Content-Length"]) :]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """The data in pieces, which `requests` sends as chunks."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def refusal(response: requests.Response, status: int = 400) -> str:
    """The message of an error."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


@pytest.mark.parametrize("count", [1, 8, 32])
def test_a_raw_body_is_one_row(server: Server, count: int) -> None:
    """Its size gives the dimension that varies. The outputs are bytes, too."""
    data = np.arange(count, dtype=np.float32).tobytes()
    assert tail(infer(server, "float32", data, RAW)) == data


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_raw_body_may_come_in_chunks(server: Server, size: int) -> None:
    assert tail(infer(server, "float32", pieces(EIGHT, size), RAW)) == EIGHT


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_json_and_tensors_may_come_in_chunks(server: Server, size: int) -> None:
    """The header with the length of the JSON counts bytes of the whole body."""
    text = (
        b'{"inputs":[{"name":"INPUT0","shape":[2,4],"datatype":"FP32","parameters":{"binary_data_size":32}}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    headers = {"Inference-Header-Content-Length": str(len(text))}
    assert tail(infer(server, "float32", pieces(text + EIGHT, size), headers)) == EIGHT


def test_chunks_beside_a_content_length_are_refused(server: Server) -> None:
    """`requests` sends both if its body has the chunks. Triton accepts it; a proxy may read it otherwise."""
    body = b"%X\r\n%b\r\n0\r\n\r\n" % (len(EIGHT), EIGHT)
    response = infer(server, "float32", body, RAW | {"Transfer-Encoding": "chunked"})
    assert refusal(response) == "the headers: expected Content-Length or Transfer-Encoding, got both"
    assert response.headers["Connection"] == "close"


def test_raw_bodies_without_a_clear_shape_are_refused(server: Server) -> None:
    """Two dimensions vary besides the batch, or the model has three inputs."""
    message = refusal(infer(server, "float16", np.ones((2, 2), np.float16).tobytes(), RAW))
    assert message == "body: expected a shape, since more than one of [1, n, m] varies"
    message = refusal(infer(server, "three-float32", np.arange(24, dtype=np.float32).tobytes(), RAW))
    assert "0 needs a model with one input, and this one has 3" in message


def test_a_model_of_strings_is_not_served(server: Server) -> None:
    """The index says why. Triton serves it."""
    index = {entry["name"]: entry for entry in server.post("/v2/repository/index").json()}
    assert index["strings"]["state"] == "UNAVAILABLE"
    assert index["strings"]["reason"] == "one of its inputs or outputs is not a tensor of numbers"
    assert index["strings"]["reason"] in refusal(infer(server, "strings", b"427", RAW), 503)


@pytest.mark.parametrize("shape", [[2**4, 2**60 + 2], [2**2, 2**60 + 2], [2**64, 1], [2, -5]])
def test_impossible_shapes_are_refused(server: Server, shape: list[int]) -> None:
    """The number of values, or of bytes, is over 64 bits, or a dimension is negative (500 from Triton)."""
    message = refusal(infer(server, "float32", {"inputs": [tensor(shape, [1.0])]}))
    parts = ("inputs[0].shape: expected", "inputs[0].data: expected", "body: expected numbers that fit")
    assert message.startswith(parts)
    binary = tensor(shape, []) | {"parameters": {"binary_data_size": 4}}
    del binary["data"]
    refusal(infer(server, "float32", {"inputs": [binary]}))


@pytest.mark.parametrize("depth", [3, 50, 120, 100_000])
def test_values_that_are_nested_deeper_than_their_shape_are_refused(server: Server, depth: int) -> None:
    """However deep. Triton accepts 100 levels whatever the shape."""
    text = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"INT64","data":%b7%b}]}'
    message = refusal(infer(server, "int64", text % (b"[" * depth, b"]" * depth)))
    assert "expected a whole number, got an array" in message or "nested less deeply" in message
    assert infer(server, "int64", text % (b"[[", b"]]")).json()["outputs"][0]["data"] == [7]


def test_an_output_is_requested_once(server: Server) -> None:
    twice = {"inputs": [tensor([1, 1], [1.0])], "outputs": [{"name": "OUTPUT0"}] * 2}
    assert "expected each output once, got 'OUTPUT0' twice" in refusal(infer(server, "float32", twice))
    assert server.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("megabytes", [0, 100])
def test_a_model_in_a_load_request_is_refused(server: Server, megabytes: int) -> None:
    """Models come from the repository alone. The client gets the answer while it is still sending."""
    body = b'{"parameters":{"file:1/model.onnx":"%b"}}' % (b"A" * (megabytes << 20))
    response = requests.post(f"{server.url}/v2/repository/models/new/load", data=body, timeout=60)
    assert "admin" in refusal(response, 403)


def test_a_request_beyond_the_queue_gets_503(repository: Path) -> None:
    """The first request waits for others to share its run with."""
    answers: list[requests.Response] = []
    options = ("--allow-unverified", "--queue", 1, "--max-delay-ms", 3000, "--max-batch", 8)
    with serving("--models", repository, *options) as server:
        first = threading.Thread(target=lambda: answers.append(infer(server, "float32", EIGHT, RAW)))
        first.start()
        wait_until(lambda: "turnpike_http_requests_in_flight 2.0" in server.get("/metrics").text)
        second = infer(server, "float32", EIGHT, RAW)
        assert "expected fewer than 1 requests (--queue)" in refusal(second, 503)
        assert int(second.headers["Retry-After"]) >= 1
        first.join()
        assert tail(answers[0]) == EIGHT
