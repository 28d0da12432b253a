"""gRPC with real client libraries, each in an environment and a process of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.clients import client_programs
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.live_server import Server, environment, serving
from tests.support.virtualenvs import ROOT, run_client
from turnpike.service.artifact.runtime import open_model
from turnpike.service.grpc.messages.descriptors import POOL

NAME = "digits-10"
GATE = "layer03.transform_gate"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers, over HTTP and gRPC."""
    with serving("--workers", 2, "--grpc-port", 0) as running:
        yield running


def float32(numbers: list[float]) -> list[float]:
    """Numbers of JSON as the model has them: a text has only as many digits as are needed for that."""
    rounded: list[float] = np.array(numbers, np.float32).tolist()
    return rounded


@pytest.fixture(scope="module")
def triton(server: Server) -> dict[str, Any]:
    """What tritonclient got from the server."""
    results: dict[str, Any] = run_client(
        "triton_grpc_client.py", client_programs("triton"), server.grpc_address, NAME
    )
    return results


def computed(rows: Any, output: str = "output", shape: Any = (-1, 1, 8, 8)) -> Any:
    """The output that onnxruntime computes for the rows of a client."""
    feeds = {"x": np.array(rows, np.float32).reshape(shape)}
    return open_model(BUNDLED_MODEL).run(feeds, [output])[0].tolist()


def test_the_grpc_client_of_triton_works(triton: dict[str, Any]) -> None:
    """Every call that it has for models without shared memory, and the answers have every bit."""
    results = triton
    outputs = computed(results["rows"])
    for form in ("raw", "everything", "gzip", "deflate", "custom_parameters"):
        assert results[form] == outputs, form
    assert results["gate"] == computed(results["rows"], GATE)
    assert results["empty"] == [0, 10]
    assert all(results[key] is True for key in ("live", "ready", "model_ready", "version_ready"))
    assert results["absent_ready"] is False
    assert (results["id"], results["version"], results["no_id"]) == ("seven", "1", "")
    best = np.argsort(-np.array(outputs), axis=1)[:, :2]
    for row, classes in enumerate(results["classes"]):
        assert classes == [f"{outputs[row][k]:.6f}:{k}:{k}" for k in best[row]]
    assert all(results["async"])

    # what it learns of the server and the model
    assert results["server"]["name"] == "turnpike"
    assert results["metadata"]["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": ["-1", "1", "8", "8"]}
    ]
    config = results["config"]["config"]
    assert config["max_batch_size"] == 128
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": ["1", "8", "8"]}]
    assert results["index"]["models"] == [{"name": NAME, "version": "1", "state": "READY"}]
    (statistics,) = results["statistics"]["model_stats"]
    assert int(statistics["inference_count"]) >= 3 * 120
    assert int(statistics["inference_stats"]["queue"]["ns"]) > 0

    # a hundred messages on a stream, one of them wrong
    stream = results["stream"]
    assert stream[50].startswith("model 'absent': expected a model that is served")
    del stream[50]
    assert [name for name, _ in stream] == [f"n{number}" for number in range(100) if number != 50]
    assert all(numbers == outputs for _, numbers in stream)
    assert results["until_final"] == [["last", outputs]]
    assert results["stream_gzip"] == [[f"n{number}", outputs] for number in range(3)]


def test_the_grpc_client_of_triton_gets_exact_errors(triton: dict[str, Any]) -> None:
    """The code of each, and a message that says what was expected."""
    refused = {
        cause: (error["status"].removeprefix("StatusCode."), error["message"])
        for cause, error in triton["refused"].items()
    }
    invalid, unknown = "INVALID_ARGUMENT", "NOT_FOUND"
    absent = (unknown, "model 'absent': expected a model that is served, as /v2/models lists them")
    assert refused == {
        "rank": (invalid, "inputs[0].shape: expected 4 dimensions [batch, 1, 8, 8], got 3"),
        "datatype": (invalid, "inputs[0].datatype: expected FP32, got 'FP64'"),
        "input": (invalid, "inputs[0].name: expected one of 'x', got 'y'"),
        "no input": (invalid, "inputs: expected one named 'x', which is missing"),
        "twice": (invalid, "inputs[1].name: expected each input once, got 'x' twice"),
        "output": (invalid, "outputs[0].name: expected one of 'output' or a gate, got 'absent'"),
        "model": absent,
        "version": (unknown, f"model '{NAME}' version '7': expected a version that is served, one of 1"),
        "version that is none": (
            unknown,
            f"model '{NAME}' version 'newest': expected a version that is served, one of 1",
        ),
        "classes": (
            invalid,
            "outputs[0].parameters.classification: expected a whole number from 0, got -1",
        ),
        "timeout": (invalid, "parameters.timeout: expected a whole number from 0, got -1"),
        "shared memory": (
            invalid,
            "inputs[0]: shared memory is not supported; expected raw or typed contents",
        ),
        "shared memory status": (
            "UNIMPLEMENTED",
            "/inference.GRPCInferenceService/SystemSharedMemoryStatus: there is no such method",
        ),
        "metadata": absent,
        "config": (unknown, f"model '{NAME}' version '7': expected a version that is served, one of 1"),
        "statistics": absent,
        "trace settings": (
            "UNIMPLEMENTED",
            "/inference.GRPCInferenceService/TraceSetting: there is no such method",
        ),
        "unload": (
            "PERMISSION_DENIED",
            "loading and unloading models is off here: it is on where an admin key is set; "
            "model-analyzer measures what is served with --reload-model-disable",
        ),
    }


def test_keys_deadlines_and_a_full_queue_over_grpc() -> None:
    """Keys are metadata. Models are unloaded and loaded with the admin key."""
    options = ("--grpc-port", 0, "--max-delay-ms", 700, "--max-batch", 8, "--queue", 1)
    with serving(*options, TURNPIKE_API_KEYS="reader", TURNPIKE_ADMIN_KEY="owner") as server:
        results = run_client(
            "triton_grpc_limits.py", client_programs("triton"), server.grpc_address, NAME, "reader", "owner"
        )
    keys, admin = results["keys"], results["admin"]
    for refusal in (keys["none"], keys["wrong"], keys["stream without"]):
        assert refusal[0] == "StatusCode.UNAUTHENTICATED"
    assert keys["bearer"] == keys["x-api-key"] == keys["stream"] == "(8, 10)"
    assert keys["no key for health"] == "True"

    assert admin["unload by a reader"] == [
        "StatusCode.PERMISSION_DENIED",
        "expected the admin key, got an API key",
    ]
    assert (admin["unload"], admin["ready"], admin["load"], admin["ready again"]) == (
        "None",
        "False",
        "None",
        "True",
    )
    assert admin["infer"] == ["StatusCode.UNAVAILABLE", f"model '{NAME}' is not served: unloaded"]
    assert admin["index"] == [{"name": NAME, "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]
    code, message = admin["load a configuration"]
    assert code == "StatusCode.INVALID_ARGUMENT"
    assert message.startswith("parameters: expected none, got 'config'")
    assert admin["load what there is not"] == [
        "StatusCode.NOT_FOUND",
        "model 'absent': expected a model of the repository",
    ]

    assert results["deadline of the client"][0] == "StatusCode.DEADLINE_EXCEEDED"
    code, message = results["deadline in microseconds"]
    assert code == "StatusCode.DEADLINE_EXCEEDED"
    assert message.startswith("timeout: expected a run before the deadline")
    was_answered, code, message = results["queue"]
    assert was_answered
    assert (code, message) == (
        "StatusCode.RESOURCE_EXHAUSTED",
        "queue: expected fewer than 1 requests (--queue) waiting for the model, and there are 1",
    )


def test_the_asyncio_clients_of_triton_work(server: Server) -> None:
    """Over HTTP and over gRPC, with compressed requests and answers, and a stream."""
    results = run_client(
        "triton_aio_client.py",
        client_programs("triton"),
        server.url.removeprefix("http://"),
        server.grpc_address,
        NAME,
    )
    outputs = computed(results["rows"])
    codes = {"http": ("404", "403"), "grpc": ("StatusCode.NOT_FOUND", "StatusCode.PERMISSION_DENIED")}
    for transport, (unknown, forbidden) in codes.items():
        got = results[transport]
        assert got["ready"] == [True, True, True, False]
        assert (got["server"], got["metadata"]) == ("turnpike", ["1"])
        assert got["raw"] == outputs
        assert got["compressed"] == [outputs] * 2
        assert got["together"] == [outputs] * 16
        assert got["model"]["status"] == got["version"]["status"] == unknown
        assert got["unload"]["status"] == forbidden
    first, second, third = results["stream"]
    assert first == third == [NAME, outputs]
    assert second.startswith("model 'absent'")


def test_the_grpc_client_of_kserve_works(server: Server) -> None:
    """With raw and with typed tensors."""
    results = run_client("kserve_grpc_client.py", client_programs("kserve"), server.grpc_address, NAME)
    outputs = computed(results["rows"])
    assert results["raw"] == ["seven", "1", outputs]
    assert results["typed"] == ["eight", "1", outputs]
    assert results["gate"] == computed(results["rows"], GATE)
    assert (results["live"], results["ready"], results["model_ready"]) == (True,) * 3
    assert results["absent_ready"] is False
    assert results["absent"]["status"] == "NOT_FOUND"
    assert results["output"]["status"] == "INVALID_ARGUMENT"


def test_the_clients_of_the_protocol_itself_work(server: Server) -> None:
    """They are generated from its OpenAPI document and its .proto file."""
    results = run_client(
        "open_inference_client.py", client_programs("open-inference"), server.url, server.grpc_address, NAME
    )
    outputs = computed(results["rows"], shape=results["shape"])
    flat = [[3, 10], list(itertools.chain(*outputs))]
    grpc, http = results["grpc"], results["http"]
    assert grpc["raw"] == grpc["typed"] == flat
    assert grpc["ids"] == ["seven", ""]
    assert (grpc["live"], grpc["ready"], grpc["model_ready"]) == (True,) * 3
    assert (grpc["absent"], grpc["no contents"]) == ("NOT_FOUND", "INVALID_ARGUMENT")
    assert float32(http["infer"][1]) == float32(flat[1])
    assert http["infer of a version"] == http["infer"]
    assert http["infer"][0] == [3, 10]
    assert (http["id"], http["version"]) == ("seven", ["1"])
    assert grpc["server"] == http["server"] == "turnpike"
    assert grpc["inputs"] == http["inputs"] == [["x", "FP32", [-1, 1, 8, 8]]]
    assert http["absent"][0] == 404
    assert http["wrong shape"] == [400, "inputs[0].shape: expected 4 dimensions [batch, 1, 8, 8], got 3"]


def test_the_clients_of_grpc_find_health_and_services(server: Server) -> None:
    """A method is called from the description that the server sends of itself."""
    results = run_client("grpc_services.py", client_programs("open-inference"), server.grpc_address, NAME)
    assert results["health"] == {
        "watch": "SERVING",
        "": "SERVING",
        "inference.GRPCInferenceService": "SERVING",
        NAME: "SERVING",
        "absent": "NOT_FOUND",
    }
    reflection = results["reflection"]
    assert len(reflection["services"]["inference.GRPCInferenceService"]) == 12
    assert reflection["services"]["turnpike.v1.GateService"] == ["Lesion", "LesionCurve", "ReadGates"]
    assert reflection["services"]["turnpike.v1.ModelService"] == ["Describe", "Predict"]
    assert len(reflection["services"]) == 5
    (output,) = reflection["infer"]["outputs"]
    (expected,) = computed(reflection["row"])
    assert float32(output["contents"]["fp32_contents"]) == float32(expected)
    assert reflection["lesion"]["closed"] == [GATE]


# the only field of the clients that is not that of Triton, which our files follow; see inference.proto
KSERVE_NAMES = {
    ("inference.RepositoryModelLoadRequest", "model_name"),
    ("inference.RepositoryModelUnloadRequest", "model_name"),
}


@pytest.mark.parametrize(
    ("client", "stubs", "messages"),
    [
        ("triton", "tritonclient.grpc.service_pb2", 40),
        ("kserve", "kserve.protocol.grpc.grpc_predict_v2_pb2", 20),
        ("open-inference", "open_inference.grpc.protocol", 15),
        ("open-inference", "grpc_health.v1.health_pb2", 2),
        ("open-inference", "grpc_reflection.v1alpha.reflection_pb2", 8),
    ],
)
def test_our_proto_files_agree_with_the_stubs_of_clients(client: str, stubs: str, messages: int) -> None:
    """Each field has the same number and type in both. The clients have more fields, and more messages."""
    theirs = run_client("proto_fields.py", client_programs(client), stubs)
    shared = 0
    for name, fields in theirs.items():
        try:
            ours = POOL.FindMessageTypeByName(name.replace(".v1alpha.", ".v1."))
        except KeyError:
            continue
        shared += 1
        for field in ours.fields:
            if field.name in fields and (name, field.name) not in KSERVE_NAMES:
                assert fields[field.name] == [field.number, field.type, field.is_repeated], field.full_name
            # a number has one meaning
            numbers = {number: other for other, (number, _, _) in fields.items()}
            other = numbers.get(field.number, field.name)
            assert other == field.name or (name, other) in KSERVE_NAMES, field.full_name
    assert shared >= messages


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_client_of_triton_and_the_service_fit_into_one_process(ours_first: bool) -> None:
    """Both have messages of the same names."""
    (folder,) = client_programs("triton").parent.glob("lib/python*/site-packages")
    modules = ["turnpike.service.grpc.application", "tritonclient.grpc"]
    program = ROOT / "tests/clients/stubs_in_one_process.py"
    command = [sys.executable, program, folder, *(modules if ours_first else reversed(modules))]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
