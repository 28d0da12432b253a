"""Predict and Describe: rows, predictions and documents in the JSON of the routes of HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.model_facts import certificate_json, gate_profile_json, samples_json
from turnpike.service.api.predict import decode_rows, predictions_json
from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.call import Call, MessageRequest
from turnpike.service.grpc.messages.descriptors import message_class, parse
from turnpike.service.grpc.methods.model_endpoint import GrpcModelEndpoint
from turnpike.service.grpc.methods.read_messages import read_message
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.response import Response

PACKAGE = "turnpike.v1"
# the functions that render the documents of DescribeRequest, by their numbers
DOCUMENTS = (certificate_json, samples_json, gate_profile_json)


class GrpcPredictEndpoint(GrpcModelEndpoint):
    """`Predict`."""

    sends_events = True

    async def __call__(self, request: MessageRequest) -> Response:
        if request.complete_body is None:
            request.complete_body = await read_message(self._bodies, cast("Call", request))
            # counted again by `run`, which takes the complete body
            self._budget.release(request)
        model = find_named_model(self.context, _predict_request(request.complete_body))
        return await self.run(model, request)

    def decode(self, body: bytes, request: MessageRequest, model: Model) -> InferenceRequest:
        return decode_rows(_predict_request(body).json, model, self.context)

    async def answer(self, call: InferenceCall, request: MessageRequest) -> Response:
        content = await predictions_json(call, bare=self.context.settings.old_predict)
        answer = message_class(f"{PACKAGE}.PredictResponse")(json=content)
        return Response(answer.SerializeToString())


def _predict_request(data: bytes) -> Any:
    return parse(message_class(f"{PACKAGE}.PredictRequest"), data)


async def describe(context: ServiceContext, request: Any) -> Any:
    """Answer `Describe`."""
    model = find_named_model(context, request)
    if request.document not in range(len(DOCUMENTS)):
        raise RequestError(
            f"document: expected a number from 0 to {len(DOCUMENTS) - 1}, got {request.document}"
        )
    content = await asyncio.to_thread(DOCUMENTS[request.document], model)
    return message_class(f"{PACKAGE}.DescribeResponse")(json=content)


def find_named_model(context: ServiceContext, message: Any) -> Model:
    """The model that a message names."""
    return context.registry.find(message.model_name, message.model_version or None)
