"""ReadGates, Lesion and LesionCurve: the answers of the routes of HTTP, as messages.

The model is run and its gates are read by the endpoints of HTTP. What they answer, JSON with the bytes of
tensors after it, is then converted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import orjson
from google.protobuf.json_format import ParseDict

from turnpike.service.api.gates import GatesEndpoint
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.lesion import LesionEndpoint
from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.call import MessageRequest
from turnpike.service.grpc.messages.descriptors import message_class, parse
from turnpike.service.grpc.messages.infer_request_cache import SplitMessage
from turnpike.service.grpc.methods.model_endpoint import GrpcModelEndpoint
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, ResponseBody

PACKAGE = "turnpike.v1"
# Python refuses to convert thousands of digits
MAX_LAYER_DIGITS = 9


class GateServiceEndpoint(GrpcModelEndpoint):
    """A call whose message has a ModelInferRequest in its field `infer`, and options beside it."""

    # name of the call's message, and of its answer's
    request_name: str
    response_name: str

    def split(self, request: MessageRequest, data: bytes) -> SplitMessage:
        message = parse(message_class(f"{PACKAGE}.{self.request_name}"), data)
        request.options = self.read_options(message)
        return self.messages.split(message.infer.SerializeToString())

    def read_options(self, message: Any) -> dict[str, Any]:
        """The options of a message, with the names and values that they have in JSON."""
        raise NotImplementedError

    def decode(self, body: bytes, request: Request, model: Model) -> InferenceRequest:
        inference = super().decode(body, request, model)
        form = inference.form
        # tensors leave as bytes
        outputs = tuple(replace(output, binary=True) for output in form.outputs)
        # options are fields of the message, and not parameters of its ModelInferRequest
        options = cast("MessageRequest", request).options
        # a form of its own: that of ModelInfer has a plan for other answers
        form = replace(form, outputs=outputs, parameters=options, plan=None)
        return InferenceRequest(form, inference.feeds)

    def to_response(self, call: InferenceCall, body: ResponseBody) -> Response:
        """The message for an answer of HTTP."""
        content, json_size = body
        record = orjson.loads(content if json_size is None else content[:json_size])
        tail = memoryview(content)[len(content) if json_size is None else json_size :]
        message = _message(record, _Tail(tail), self.response_name)
        message.infer.id = cast("MessageRequest", call.request).message_id.decode()
        return Response(message.SerializeToString())


class ReadGatesEndpoint(GateServiceEndpoint, GatesEndpoint):
    """`ReadGates`."""

    request_name, response_name = "ReadGatesRequest", "ReadGatesResponse"

    def read_options(self, message: Any) -> dict[str, Any]:
        details = message.DESCRIPTOR.fields_by_name["detail"].enum_type.values_by_number
        if message.detail not in details:
            raise RequestError(
                f"detail: expected one of {', '.join(map(str, details))}, got {message.detail}"
            )
        detail = details[message.detail].name.lower()
        return {"detail": detail, "blocks": message.blocks, "binary": True, **_moves(message.moves)}

    async def answer(self, call: InferenceCall) -> Response:  # type: ignore[override]
        return self.to_response(call, await GatesEndpoint.answer(self, call))


class GrpcLesionEndpoint(GateServiceEndpoint, LesionEndpoint):
    """`Lesion`."""

    request_name, response_name = "LesionRequest", "LesionResponse"

    def read_options(self, message: Any) -> dict[str, Any]:
        return _moves(message.moves)

    async def answer(self, call: InferenceCall) -> Response:  # type: ignore[override]
        return self.to_response(call, await LesionEndpoint.answer(self, call))


class GrpcLesionCurveEndpoint(GrpcLesionEndpoint):
    """`LesionCurve`."""

    request_name, response_name = "LesionCurveRequest", "LesionCurveResponse"

    def read_options(self, message: Any) -> dict[str, Any]:
        return {"curve": True}


def _moves(moves: Any) -> dict[str, Any]:
    """The gates to move, as in JSON: a number is a layer, any other text the name of a gate."""
    options: dict[str, Any] = {
        key: [_layer_or_name(gate) for gate in getattr(moves, key)]
        for key in ("close", "open")
        if getattr(moves, key)
    }
    return options | ({"shift": dict(moves.shift)} if moves.shift else {})


def _layer_or_name(gate: str) -> int | str:
    is_number = gate.isascii() and gate.isdigit() and len(gate) <= MAX_LAYER_DIGITS
    return int(gate) if is_number else gate


class _Tail:
    """The bytes after the JSON of an answer, which its tensors take in their order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, entry: dict[str, Any]) -> bytes:
        size = entry["parameters"]["binary_data_size"]
        self._position += size
        return bytes(self._data[self._position - size : self._position])


def _message(record: dict[str, Any], tail: _Tail, name: str) -> Any:
    """The message for an answer: its outputs go to the field `infer`, and the other keys to their fields."""
    message = message_class(f"{PACKAGE}.{name}")()
    _fill_infer(message.infer, record, tail)
    if "lesioned" in record:
        _fill_infer(message.lesioned, record["lesioned"], tail)
    for entry in record.get("tensors", ()):
        message.tensors.add(
            name=entry["name"],
            datatype=entry["datatype"],
            shape=entry["shape"],
            raw_contents=tail.take(entry),
        )
    rest = {key: record[key] for key in ("gates", "route", "lesion", "curve") if key in record}
    return ParseDict(_without_nulls(rest), message, ignore_unknown_fields=True)


def _fill_infer(infer: Any, record: dict[str, Any], tail: _Tail) -> None:
    """Fill a ModelInferResponse with the outputs of an answer."""
    infer.model_name, infer.model_version = record["model_name"], record["model_version"]
    for entry in record["outputs"]:
        infer.outputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
        infer.raw_output_contents.append(tail.take(entry))


def _without_nulls(value: Any) -> Any:
    """A value of JSON without the keys that are null, which messages do not have."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value if item is not None] if isinstance(value, list) else value
