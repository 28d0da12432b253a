"""Gates over gRPC: the numbers of ReadGates, Lesion and LesionCurve are those of the routes of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.support.grpc_worker import GrpcWorker, grpc_worker, infer_request
from tests.support.in_process_worker import infer, rows
from tests.support.infer_messages import as_json
from turnpike.service.grpc.application import GATES
from turnpike.service.grpc.messages.descriptors import message_class

NAME = "digits-10"
ROWS = rows(1, 2, 3)
GATE = "layer03.transform_gate"


async def call(worker: GrpcWorker, method: str, **fields: Any) -> Any:
    message = message_class(f"turnpike.v1.{method}Request")(**fields)
    if not message.HasField("infer"):
        message.infer.CopyFrom(infer_request(ROWS, request_id="seven"))
    return await worker.method(GATES, method)(message)


def run(scene: Callable[[GrpcWorker], Awaitable[None]], **settings: Any) -> None:
    async def play() -> None:
        async with grpc_worker(**settings) as worker:
            await scene(worker)

    asyncio.run(play())


def as_text(moves: dict[str, Any]) -> dict[str, Any]:
    """The moves of JSON as a message has them: numbers of layers are texts."""
    return {key: value if key == "shift" else list(map(str, value)) for key, value in moves.items()}


def tensors(entries: Any, contents: Any) -> dict[str, Any]:
    """The arrays of raw tensors, by name."""
    types = {"FP32": np.float32}
    return {
        entry.name: np.frombuffer(raw, types[entry.datatype]).reshape(list(entry.shape))
        for entry, raw in zip(entries, contents, strict=True)
    }


def outputs(infer_message: Any) -> dict[str, Any]:
    return tensors(infer_message.outputs, infer_message.raw_output_contents)


def of_json(entries: Any) -> dict[str, Any]:
    """The arrays of tensors in JSON, by name."""
    return {entry["name"]: np.array(entry["data"], np.float32).reshape(entry["shape"]) for entry in entries}


def assert_equal(arrays: dict[str, Any], others: dict[str, Any]) -> None:
    assert list(arrays) == list(others)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name])


def with_parameter(name: str) -> Any:
    """A request with a flag among its parameters."""
    request = infer_request(ROWS)
    request.parameters[name].bool_param = True
    return request


@pytest.mark.parametrize("detail", ["summary", "units", "rows"])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    "moves", [{}, {"close": ["layer04.transform_gate"], "open": [5], "shift": {GATE: 0.5}}]
)
def test_gates_are_read_as_over_http(detail: str, blocks: bool, moves: dict[str, Any]) -> None:
    """Statistics, route and tensors, whatever is asked for."""

    async def scene(worker: GrpcWorker) -> None:
        fields = {"detail": detail.upper(), "blocks": blocks, "moves": as_text(moves)}
        message = await call(worker, "ReadGates", **fields)
        parameters = {"detail": detail, "blocks": blocks}
        body = infer(ROWS, parameters=parameters, **moves)
        record = await worker.http("POST", f"/v2/models/{NAME}/gates", body)
        assert (message.infer.model_name, message.infer.model_version) == (NAME, "1")
        assert message.infer.id == "seven"
        assert_equal(outputs(message.infer), of_json(record["outputs"]))
        raw = [tensor.raw_contents for tensor in message.tensors]
        assert_equal(tensors(message.tensors, raw), of_json(record.get("tensors", ())))
        assert [as_json(gate) for gate in message.gates] == record["gates"]
        assert as_json(message.route) == record["route"]

    run(scene)


def test_requested_outputs_come_with_the_gates() -> None:
    """Gates as outputs, and classes."""

    async def scene(worker: GrpcWorker) -> None:
        request = infer_request(ROWS, outputs=[GATE, "output"])
        request.outputs[1].parameters["classification"].int64_param = 1
        message = await call(worker, "ReadGates", infer=request)
        gate, classes = message.infer.outputs
        assert (gate.name, classes.datatype, list(classes.shape)) == (GATE, "BYTES", [3, 1])
        (length,) = np.frombuffer(message.infer.raw_output_contents[1][:4], "<u4")
        assert b":" in message.infer.raw_output_contents[1][4 : 4 + length]
        assert not message.infer.id

    run(scene)


def test_statistics_of_no_rows_are_not_set() -> None:
    """They are null over HTTP."""

    async def scene(worker: GrpcWorker) -> None:
        message = await call(worker, "ReadGates", infer=infer_request(ROWS[:0]))
        assert len(message.gates) == 10
        for gate in message.gates:
            assert gate.units == 64
            assert not any(gate.HasField(field) for field in ("mean", "sd", "closed", "open", "carried"))
            assert not gate.quantiles

    run(scene)


@pytest.mark.parametrize(
    "moves",
    [{"close": [3]}, {"open": [GATE]}, {"close": [1, 2], "shift": {GATE: -1.5}}, {"close": list(range(10))}],
)
def test_a_lesion_has_the_effect_that_it_has_over_http(moves: dict[str, Any]) -> None:
    async def scene(worker: GrpcWorker) -> None:
        message = await call(worker, "Lesion", moves=as_text(moves))
        record = await worker.http("POST", f"/v2/models/{NAME}/lesion", infer(ROWS, **moves))
        assert_equal(outputs(message.infer), of_json(record["outputs"]))
        assert_equal(outputs(message.lesioned), of_json(record["lesioned"]["outputs"]))
        assert message.infer.id == "seven"
        assert as_json(message.lesion) == record["lesion"]

    run(scene)


def test_the_curve_is_that_of_http() -> None:
    async def scene(worker: GrpcWorker) -> None:
        message = await call(worker, "LesionCurve")
        record = await worker.http("POST", f"/v2/models/{NAME}/lesion", infer(ROWS, curve=True))
        assert as_json(message.curve) == record["curve"]
        assert_equal(outputs(message.infer), of_json(record["outputs"]))

    run(scene)


@pytest.mark.parametrize(
    ("method", "fields", "code", "text"),
    [
        ("Lesion", {}, "INVALID_ARGUMENT", "body: expected close, open, shift or curve to say what to do"),
        ("Lesion", {"infer": with_parameter("curve")}, "INVALID_ARGUMENT", "body: expected close, open"),
        ("Lesion", {"moves": {"close": ["10"]}}, "INVALID_ARGUMENT", "close[0]: expected"),
        ("Lesion", {"moves": {"close": ["absent"]}}, "INVALID_ARGUMENT", "close[0]: expected"),
        ("Lesion", {"moves": {"close": ["9" * 5000]}}, "INVALID_ARGUMENT", "close[0]: expected"),
        ("Lesion", {"moves": {"close": ["3"], "open": ["3"]}}, "INVALID_ARGUMENT", ""),
        ("Lesion", {"moves": {"shift": {GATE: float("nan")}}}, "INVALID_ARGUMENT", "shift"),
        ("ReadGates", {"detail": 7}, "INVALID_ARGUMENT", "detail: expected one of 0, 1, 2, got 7"),
        ("ReadGates", {"infer": infer_request(ROWS, name="absent")}, "NOT_FOUND", "model 'absent'"),
        ("LesionCurve", {"infer": {}}, "NOT_FOUND", "model ''"),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(method: str, fields: dict[str, Any], code: str, text: str) -> None:
    async def scene(worker: GrpcWorker) -> None:
        got, message = await worker.refused(call(worker, method, **fields))
        assert got == code, message
        assert message.startswith(text), message

    run(scene)


def test_answers_over_the_limit_are_refused() -> None:
    """T of three rows takes 7680 bytes."""

    async def scene(worker: GrpcWorker) -> None:
        code, message = await worker.refused(call(worker, "ReadGates", detail="ROWS"))
        assert code == "RESOURCE_EXHAUSTED"
        assert message.startswith("gates: expected at most 3000 bytes of them (--max-gates)")

    run(scene, max_gates=3000)
