"""The base class of endpoints that run a model: decodes the request, runs the model, encodes the response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Awaitable, Mapping
from functools import cached_property, partial
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.inference import InferenceCall, run_deadline
from turnpike.service.codec.infer_request import JSON_LENGTH_HEADER
from turnpike.service.codec.infer_request_cache import CachingDecoder
from turnpike.service.errors import RequestError
from turnpike.service.gates.query import check_gate_output_size
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, ResponseBody, body_response
from turnpike.service.requests.router import Endpoint, Router

# how headers are looked up
JSON_LENGTH_FIELD = JSON_LENGTH_HEADER.lower().encode()
TIMEOUT_HEADER = b"x-request-timeout-ms"
# the arrays of a larger body are counted against the memory budget in place of it
LARGE_BODY_BYTES = 1 << 16


# the requests of a transport
RequestT = TypeVar("RequestT", bound=Request)


class ModelEndpoint(ABC, Generic[RequestT]):
    """Handles a request that runs a model; a subclass implements how it is run and encoded (`answer`)."""

    # keys that the JSON body may have in addition to those of an infer request
    extra_keys: frozenset[str] = frozenset()
    # whether its requests and answers are payload events
    sends_events = False

    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self._bodies, self._budget = context.bodies, context.budget
        self._events = context.events if self.sends_events else None
        self._max_gates = context.settings.max_gates
        # raises an error for a decoded request that is refused
        self.check = partial(check_gate_output_size, limit=self._max_gates)
        self._timeout_ms = context.settings.timeout_ms

    @cached_property
    def _decoder(self) -> CachingDecoder:
        """The decoder of bodies, which requests of gRPC do not have."""
        return CachingDecoder(self.context.limits, self.extra_keys, self.check)

    def find_model(self, params: Mapping[str, str]) -> Model:
        """The model that the path of the request names."""
        return self.context.registry.find(params["model"], params.get("version"))

    def decode(self, body: bytes, request: RequestT, model: Model) -> InferenceRequest:
        """Decode the body."""
        length = request.head.fields.get(JSON_LENGTH_FIELD)
        json_length = None if length is None else _json_length(length)
        return self._decoder.decode(body, json_length, model.signature, model.serial)

    def client_timeout(self, request: RequestT) -> float | None:
        """Seconds that the client is willing to wait, if it says so."""
        header = request.head.fields.get(TIMEOUT_HEADER)
        return None if header is None else parse_timeout_ms(header) / 1e3

    @abstractmethod
    async def answer(self, call: InferenceCall, request: RequestT) -> ResponseBody | Response:
        """Run the model, and encode the response."""

    def __call__(self, request: RequestT) -> Awaitable[Response]:
        return self.run(self.find_model(request.path_params), request)

    async def run(self, model: Model, request: RequestT) -> Response:
        """Answer a request for a model, and count it among the requests of the model."""
        call = None
        try:
            if model.batcher.is_full:
                # refused before its body is read and decoded
                raise model.batcher.overloaded_error()
            body = self._bodies.take_complete(request)
            if body is None:
                body = await self._bodies.read(request)
            received_ns = perf_counter_ns()
            if self._events is not None:
                self._events.add_request(request, model.name, model.version, body)
            inference = self.decode(body, request, model)
            if request.budgeted_bytes > LARGE_BODY_BYTES or inference.form.has_texts:
                self._release_body(request, inference)
                body = b""
            deadline = run_deadline(inference.form, self.client_timeout(request), self._timeout_ms)
            call = InferenceCall(model, inference, deadline, request)
            answer = await self.answer(call, request)
        except RequestError as error:
            model.counters.count_failure(error.reason, perf_counter_ns() - request.started_ns)
            raise
        except CancelledError:
            model.counters.count_failure("gone", perf_counter_ns() - request.started_ns)
            if call is not None:
                call.abandon()
            raise
        call.count_success(received_ns)
        response = answer if isinstance(answer, Response) else body_response(answer)
        if self._events is not None:
            self._events.add_response(request, model.name, model.version, response)
        return response

    def _release_body(self, request: Request, inference: InferenceRequest) -> None:
        """Hold the decoded arrays of a request in place of its body, which they may be views of.

        Ids may be many times as large as the texts that they were made from.
        """
        request.complete_body = None
        self._budget.recount(request, sum(array.nbytes for array in inference.feeds.values()))


def add_model_routes(
    router: Router, method: str, path: str, endpoint: Endpoint, name: str, operation: Mapping[str, Any]
) -> None:
    """Add two routes: for the newest version of the `{model}` in the path, and for a named version."""
    version_path = path.replace("{model}", "{model}/versions/{version}")
    router.add(method, path, "api", endpoint, name, operation)
    router.add(method, version_path, "api", endpoint, f"{name}_version", operation)


def _json_length(header: bytes) -> int:
    """The number of bytes of the body that are JSON, by its header."""
    if not (header.isdigit() and len(header) <= 12):
        value = header[:40].decode("latin-1")
        raise RequestError(f"{JSON_LENGTH_HEADER}: expected a number of bytes, got {value!r}")
    return int(header)


def parse_timeout_ms(header: bytes) -> int:
    """The value of the header `X-Request-Timeout-Ms`."""
    if not (header.isdigit() and 0 < len(header) <= 10 and int(header)):
        value = header[:40].decode("latin-1")
        raise RequestError(f"X-Request-Timeout-Ms: expected whole milliseconds from 1, got {value!r}")
    return int(header)
