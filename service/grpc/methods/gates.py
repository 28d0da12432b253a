"""ReadGates, Lesion and LesionCurve. The model is run and its gates are read as for the routes of HTTP."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.gates import GatesRunner, find_model_with_gates
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.lesion import run_lesion
from turnpike.service.errors import RequestError
from turnpike.service.gates.query import parse_gate_query
from turnpike.service.grpc.connection.call import MessageRequest
from turnpike.service.grpc.messages.descriptors import message_class, parse
from turnpike.service.grpc.messages.gates_response import MessageSummaries, encode_gates, encode_lesion
from turnpike.service.grpc.messages.infer_request_cache import SplitMessage
from turnpike.service.grpc.methods.model_endpoint import GrpcModelEndpoint
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.response import Response

PACKAGE = "turnpike.v1"
# Python refuses to convert thousands of digits
MAX_LAYER_DIGITS = 9


class GateServiceEndpoint(GrpcModelEndpoint):
    """A call whose message has a ModelInferRequest in its field `infer`, and options beside it."""

    # name of the call's message
    request_name: str

    def find_model(self, params: Mapping[str, str]) -> Model:
        return find_model_with_gates(self.context, params)

    def split(self, request: MessageRequest, data: bytes) -> SplitMessage:
        message = parse(message_class(f"{PACKAGE}.{self.request_name}"), data)
        request.options = self.read_options(message)
        return self.messages.split(message.infer.SerializeToString())

    @abstractmethod
    def read_options(self, message: Any) -> dict[str, Any]:
        """The options of a message, with the names and values that they have in JSON."""

    def decode(self, body: bytes, request: MessageRequest, model: Model) -> InferenceRequest:
        inference = super().decode(body, request, model)
        # options are fields of the message, and not parameters of its ModelInferRequest
        return inference.with_binary_outputs(request.options)


class ReadGatesEndpoint(GateServiceEndpoint):
    """`ReadGates`."""

    request_name = "ReadGatesRequest"

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._runner = GatesRunner(context, MessageSummaries)

    def read_options(self, message: Any) -> dict[str, Any]:
        details = message.DESCRIPTOR.fields_by_name["detail"].enum_type.values_by_number
        if message.detail not in details:
            raise RequestError(
                f"detail: expected one of {', '.join(map(str, details))}, got {message.detail}"
            )
        detail = details[message.detail].name.lower()
        return {"detail": detail, "blocks": message.blocks, "binary": True, **_moves(message.moves)}

    async def answer(self, call: InferenceCall, request: MessageRequest) -> Response:
        run = self._runner.prepare_run(call, parse_gate_query(b"", call.inference.form.parameters))
        return Response(await run.answer(call, partial(encode_gates, request_id=request.message_id)))


class GrpcLesionEndpoint(GateServiceEndpoint):
    """`Lesion`."""

    request_name = "LesionRequest"

    def read_options(self, message: Any) -> dict[str, Any]:
        return _moves(message.moves)

    async def answer(self, call: InferenceCall, request: MessageRequest) -> Response:
        return Response(encode_lesion(await run_lesion(call), request.message_id))


class GrpcLesionCurveEndpoint(GrpcLesionEndpoint):
    """`LesionCurve`."""

    request_name = "LesionCurveRequest"

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
