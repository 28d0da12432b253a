"""The base class of calls that run a model: their message names it."""

from __future__ import annotations

from typing import cast

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import ModelEndpoint
from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.call import Call, MessageRequest
from turnpike.service.grpc.messages.infer_request_cache import InferMessageDecoder, SplitMessage
from turnpike.service.grpc.methods.read_messages import read_message
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.response import Response

# units of the header `grpc-timeout`, in seconds
TIMEOUT_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
MAX_TIMEOUT_DIGITS = 8


class GrpcModelEndpoint(ModelEndpoint[MessageRequest]):
    """Reads the message of a call, and runs the model that it names.

    A subclass says how to `answer`. One whose messages contain a ModelInferRequest overrides `split` as well.
    """

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self.messages = InferMessageDecoder(context.limits, self.check)

    def split(self, request: MessageRequest, data: bytes) -> SplitMessage:
        """Split the ModelInferRequest in the message of a call."""
        return self.messages.split(data)

    async def __call__(self, request: MessageRequest) -> Response:
        if request.complete_body is None:
            # a message of a stream is complete
            request.complete_body = await read_message(self._bodies, cast("Call", request))
            # counted again by `run`, which takes the complete body
            self._budget.release(request)
        model = self._named_model(request, request.complete_body)
        return await self.run(model, request)

    def _named_model(self, request: MessageRequest, data: bytes) -> Model:
        """Split the message of a call, and find the model that it names."""
        message = request.infer_message = self.split(request, data)
        request.message_id = message.id
        params = {"model": message.model_name}
        if message.model_version:
            params["version"] = message.model_version
        return self.find_model(params)

    def decode(self, body: bytes, request: MessageRequest, model: Model) -> InferenceRequest:
        inference = self.messages.decode(request.infer_message, model.signature, model.serial)
        # only the arrays are counted from now on, and a client may take long to read the answer
        request.infer_message = None
        return inference

    def client_timeout(self, request: MessageRequest) -> float | None:
        timeout = request.head.timeout
        return None if timeout is None else parse_timeout(timeout)


def parse_timeout(header: bytes) -> float:
    """Seconds of a header `grpc-timeout`."""
    digits, unit = header[:-1], header[-1:]
    if not digits.isdigit() or len(digits) > MAX_TIMEOUT_DIGITS or unit not in TIMEOUT_UNITS:
        value = header[:40].decode("latin-1")
        raise RequestError(f"grpc-timeout: expected up to 8 digits and a unit such as m, got {value!r}")
    return int(digits) * TIMEOUT_UNITS[unit]
