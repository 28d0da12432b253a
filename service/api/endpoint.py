"""From the bytes of a request to the bytes of its answer: what all that run a model have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from time import perf_counter_ns
from typing import Any

from starlette.types import Receive, Scope, Send

from service.api.context import ServiceContext
from service.api.inference import Content, InferenceCall, deadline, reject_if_queue_full
from service.errors import RequestError
from service.gates.query import check_gate_output_size
from service.http.body import MemoryBudget
from service.http.request_context import Course
from service.inference_types import InferenceRequest
from service.protocol.infer_request_cache import CachingDecoder
from service.registry.model import Model

JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
Headers = tuple[tuple[bytes, bytes], ...]
Coming = AbstractAsyncContextManager[bytes]
Steps = Coroutine[Any, Any, Content]

# bytes of an answer that are more than a connection buffers by itself
MUCH = 1 << 16
LENGTH = b"inference-header-content-length"


class ModelEndpoint(ABC):
    """A raw ASGI endpoint, since a framework's own way costs more than the model's run."""

    # keys of the body that mean something here beyond infer's
    extra: frozenset[str] = frozenset()

    def __init__(self, parts: ServiceContext) -> None:
        self.parts = parts
        self._decoder = CachingDecoder(parts.limits, self.extra)

    def find(self, params: Mapping[str, str]) -> Model:
        """The model of an address."""
        return self.parts.shelf.find(params["model"], params.get("version"))

    def decode(self, body: bytes, header: int | None, model: Model) -> InferenceRequest:
        """The request that the body holds."""
        return self._decoder.decode(body, header, model.signature, model.digest)

    @abstractmethod
    async def content(self, inquiry: InferenceCall) -> Content:
        """The body of the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, held = dict(scope["headers"]), self.parts.held
        body = held.body(headers, receive)
        content, length = await self.answer(scope["exchange"], scope["path_params"], headers, body)
        await respond(send, content, length, held)

    async def answer(
        self, course: Course, params: Mapping[str, str], headers: Mapping[bytes, bytes], coming: Coming
    ) -> Content:
        """The content of the answer; every await in it is one of a future."""
        started = perf_counter_ns()
        parts = self.parts
        model = self.find(params)
        try:
            reject_if_queue_full(model)
            async with coming as body:
                read = perf_counter_ns()
                inference = self.decode(body, header_length(headers), model)
                check_gate_output_size(inference, model.signature, parts.settings.max_gates)
                decoded = perf_counter_ns()
                until = deadline(inference, headers.get(b"x-request-timeout-ms"), parts.settings.timeout_ms)
                inquiry = InferenceCall(model, inference, until, course)
                content = await self.content(inquiry)
        except RequestError as error:
            model.counters.count_failure(error.reason, perf_counter_ns() - started)
            raise
        except CancelledError:
            model.counters.count_failure("gone", perf_counter_ns() - started)
            raise
        ended = perf_counter_ns()
        if inquiry.first is not None:
            model.counters.count_request(
                inquiry.first,
                total_ns=ended - started,
                decode_ns=decoded - read,
                encode_ns=ended - inquiry.ran,
                rows=inference.rows,
            )
        return content


def content_headers(content: bytes, length: int | None) -> Headers:
    """What the headers say of an answer."""
    size = (b"content-length", b"%d" % len(content))
    return (JSON, size) if length is None else (BINARY, size, (LENGTH, b"%d" % length))


def header_length(headers: Mapping[bytes, bytes]) -> int | None:
    """How many bytes of the body are its JSON, as the client says."""
    text = headers.get(LENGTH)
    if text is None:
        return None
    if not (text.isdigit() and len(text) <= 12):
        came = text[:40].decode("latin-1")
        raise RequestError(f"Inference-Header-Content-Length: expected a number of bytes, got {came!r}")
    return int(text)


async def respond(
    send: Send, content: bytes, length: int | None = None, held: MemoryBudget | None = None
) -> None:
    """Answer 200 with JSON, or with `length` bytes of it and tensors after that.

    What is much is `held` until the client has read most of it.
    """
    start = {"type": "http.response.start", "status": 200, "headers": content_headers(content, length)}
    if held is None or len(content) < MUCH:
        await send(start)
        await send({"type": "http.response.body", "body": content})
        return
    with held.answer(len(content)):
        await send(start)
        await send({"type": "http.response.body", "body": content, "more_body": True})
        # the server takes this when little of what was sent before is left
        await send({"type": "http.response.body", "body": b""})
