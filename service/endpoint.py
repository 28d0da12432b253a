"""From the bytes of a request to the bytes of its answer: what all that run a model have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from time import perf_counter_ns

from starlette.types import Receive, Scope, Send

from service.body import Held
from service.decode import decode
from service.detail import expect_few
from service.errors import RequestError
from service.inference import deadline, expect_room
from service.inquiry import Content, Inquiry
from service.model import Model
from service.parts import Parts
from service.request import Inference

JSON = b"application/json"
BINARY = b"application/octet-stream"
# bytes of an answer that are more than a connection buffers by itself
MUCH = 1 << 16
LENGTH = b"inference-header-content-length"


class Endpoint(ABC):
    """A raw ASGI endpoint, since a framework's own way costs more than the model's run."""

    # keys of the body that mean something here beyond infer's
    extra: frozenset[str] = frozenset()

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def find(self, scope: Scope) -> Model:
        """The model of an address."""
        path = scope["path_params"]
        return self.parts.shelf.find(path["model"], path.get("version"))

    def decode(self, body: bytes, header: int | None, model: Model) -> Inference:
        """The request that the body holds."""
        return decode(body, header, model.signature, self.parts.limits, self.extra)

    @abstractmethod
    async def content(self, inquiry: Inquiry) -> Content:
        """The body of the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter_ns()
        parts, headers = self.parts, dict(scope["headers"])
        model = self.find(scope)
        try:
            expect_room(model)
            async with parts.held.body(scope, receive) as body:
                read = perf_counter_ns()
                inference = self.decode(body, header_length(headers), model)
                expect_few(inference, model.signature, parts.settings.max_gates)
                decoded = perf_counter_ns()
                until = deadline(inference, headers.get(b"x-request-timeout-ms"), parts.settings.timeout_ms)
                inquiry = Inquiry(model, inference, until, scope["exchange"])
                content, length = await self.content(inquiry)
        except RequestError as error:
            model.meter.fail(error.reason, perf_counter_ns() - started)
            raise
        except CancelledError:
            model.meter.fail("gone", perf_counter_ns() - started)
            raise
        ended = perf_counter_ns()
        if inquiry.first is not None:
            model.meter.request(
                inquiry.first,
                total_ns=ended - started,
                decode_ns=decoded - read,
                encode_ns=ended - inquiry.ran,
                rows=inference.rows,
            )
        await respond(send, content, length, parts.held)


def header_length(headers: dict[bytes, bytes]) -> int | None:
    """How many bytes of the body are its JSON, as the client says."""
    text = headers.get(LENGTH)
    if text is None:
        return None
    if not (text.isdigit() and len(text) <= 12):
        came = text[:40].decode("latin-1")
        raise RequestError(f"Inference-Header-Content-Length: expected a number of bytes, got {came!r}")
    return int(text)


async def respond(send: Send, content: bytes, length: int | None = None, held: Held | None = None) -> None:
    """Answer 200 with JSON, or with `length` bytes of it and tensors after that.

    What is much is `held` until the client has read most of it.
    """
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(content))]
    if length is not None:
        headers[0] = (b"content-type", BINARY)
        headers.append((LENGTH, b"%d" % length))
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    if held is None or len(content) < MUCH:
        await send(start)
        await send({"type": "http.response.body", "body": content})
        return
    with held.answer(len(content)):
        await send(start)
        await send({"type": "http.response.body", "body": content, "more_body": True})
        # the server takes this when little of what was sent before is left
        await send({"type": "http.response.body", "body": b""})
