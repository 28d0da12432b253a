"""ModelStreamInfer: a stream of requests on one call, each answered like a ModelInfer, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.call import Call, MessageRequest
from turnpike.service.grpc.connection.header_blocks import GrpcHead
from turnpike.service.grpc.connection.status import status_of
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.messages.infer_response import InferResponse, varint, with_id
from turnpike.service.grpc.methods.read_messages import next_message
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.driver import Driver
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import ErrorResponse, Response

StreamResponse = message_class("inference.ModelStreamInferResponse")
# first byte of the field `infer_response`
INFER_RESPONSE = b"\x12"
# As Triton sends it with every answer on a stream: its clients wait for it, since a request may have several.
FINAL = InferResponse(parameters={"triton_final_response": {"bool_param": True}}).SerializeToString()
INFER_PATH = "/inference.GRPCInferenceService/ModelInfer"
# requests of one stream that are answered at a time; further ones stay with the client
MAX_IN_FLIGHT = 64


class StreamedRequest(MessageRequest):
    """One message of a stream. It is handled, counted and logged as a request of its own."""

    def __init__(self, call: Call, head: GrpcHead, data: bytes) -> None:
        self.head = head
        self.client = call.client
        self.complete_body = data
        self.answer: Response | None = None
        loop = asyncio.get_running_loop()
        # done when there is an answer, or none will come; and when the client's windows had room for it
        self.answered: asyncio.Future[None] = loop.create_future()
        self.sent: asyncio.Future[None] = loop.create_future()

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        data, self.complete_body = self.complete_body or b"", None
        return data, False

    def respond(self, response: Response) -> Awaitable[None] | None:
        self.answer, self.status = response, response.status
        if isinstance(response, ErrorResponse):
            self._answer_code = status_of(response)
        if not self.answered.done():
            self.answered.set_result(None)
        return None

    async def respond_slowly(self, response: Response) -> None:
        """Return when the answer was sent: until then the middleware counts its memory."""
        self.respond(response)
        await self.sent

    def ended(self, error: BaseException | None) -> None:
        """Note that it was handled. Called by its driver."""
        self.driver = None
        if self.answered.done():
            return
        if error is None or self.client_gone:
            self.answered.set_result(None)
        else:
            self.answered.set_exception(error)

    def abandon(self) -> None:
        """End it, because its stream has ended."""
        self.client_gone = True
        if self.driver is not None:
            self.driver.cancel()


class StreamInferEndpoint:
    """Answers the messages of a stream, several at a time.

    An error of a model or of its inputs ends its message. A message that cannot be read ends the stream.
    """

    def __init__(
        self,
        bodies: BodyReader,
        budget: MemoryBudget,
        handle: Callable[[Request], Coroutine[Any, Any, None]],
    ) -> None:
        self._bodies, self._budget, self._handle = bodies, budget, handle

    async def __call__(self, call: Call) -> None:
        head = GrpcHead(INFER_PATH, call.head.headers, is_grpc=True)
        in_flight: deque[StreamedRequest] = deque()
        # the deadline of the stream, if it has one, is not that of each message
        head.timeout = None
        room = asyncio.Semaphore(MAX_IN_FLIGHT)
        added = asyncio.Event()
        finished = False

        async def send_answers() -> None:
            try:
                while in_flight or not finished:
                    if not in_flight:
                        added.clear()
                        await added.wait()
                        continue
                    streamed = in_flight[0]
                    await streamed.answered
                    if streamed.answer is not None:
                        await call.send_message(_encode(streamed))
                    if not streamed.sent.done():
                        streamed.sent.set_result(None)
                    in_flight.popleft()
                    room.release()
            finally:
                # the loop below would wait for ever: no further answer makes room
                room.release()

        sending = asyncio.create_task(send_answers())
        stream_error: RequestError | None = None
        try:
            try:
                while (data := await next_message(self._bodies, self._budget, call)) is not None:
                    await room.acquire()
                    if sending.done():
                        break
                    streamed = StreamedRequest(call, head, data)
                    # kept and counted only as long as that request needs it
                    del data
                    in_flight.append(streamed)
                    added.set()
                    driver = streamed.driver = Driver(self._handle(streamed), streamed.ended)
                    driver.step()
            except RequestError as error:
                # a damaged message, or the server stops: what came before is answered
                stream_error = error
            finished = True
            added.set()
            await sending
        finally:
            sending.cancel()
            for streamed in in_flight:
                streamed.abandon()
        if stream_error is not None:
            raise stream_error
        call.finish()


def _encode(streamed: StreamedRequest) -> bytes:
    """The message for the answer to one request."""
    answer = streamed.answer
    if isinstance(answer, ErrorResponse):
        error: bytes = StreamResponse(error_message=answer.message).SerializeToString()
        return error + _infer_response(with_id(FINAL, streamed.message_id))
    return _infer_response((answer.body if answer is not None else b"") + FINAL)


def _infer_response(data: bytes) -> bytes:
    return INFER_RESPONSE + varint(len(data)) + data
