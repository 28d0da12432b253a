"""A call on its stream of HTTP/2: receives messages, and sends the answer within the client's windows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from turnpike.service.errors import NotReadyError, RequestError
from turnpike.service.grpc.connection.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADERS,
    MAX_FRAME_BYTES,
    frame,
)
from turnpike.service.grpc.connection.header_blocks import OK_TRAILERS, GrpcHead, literal
from turnpike.service.grpc.connection.status import StatusCode, encode_message, status_of
from turnpike.service.requests.middleware import COMPRESSED_FROM_BYTES
from turnpike.service.requests.request import ClientGoneError, Request
from turnpike.service.requests.response import ErrorResponse, Response

if TYPE_CHECKING:
    from turnpike.service.grpc.connection.http2_connection import Http2Connection

# before each message: whether it is compressed (one byte), and its length (four)
PREFIX_BYTES = 5
NO_BYTES = bytearray()
REQUEST_ID_NAME = literal(b"x-request-id", b"")[:-1]
# The length of a longer id takes more than one byte. Clients may choose such ids.
MAX_SHORT_ID = 126


class MessageRequest(Request):
    """A request of one message."""

    head: GrpcHead
    # what an endpoint has read in the message: its id, its ModelInferRequest until that is decoded, and the
    # options beside it
    message_id = b""
    infer_message: Any = None
    options: Any = None
    # the status code of the answer, if there was one
    _answer_code = StatusCode.OK

    @property
    def grpc_code(self) -> int:
        return self._answer_code if self.status else StatusCode.CANCELLED

    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        raise NotImplementedError("calls of gRPC do not go to ASGI applications")


class Call(MessageRequest):
    """One call: a request of one message or a stream of messages, and its answer."""

    encoding_header: str = "grpc-encoding"
    # the client has sent all that it will send
    received = False
    response_complete = False
    headers_sent = False
    # bytes of the body that were announced (Content-Length) and have not arrived
    announced_left: int | None = None
    # bytes that have arrived and were not read yet
    _buffer: bytearray = NO_BYTES
    # bytes of the present message that were not read yet, its length, and whether it is compressed
    _message_left = 0
    _message_length: int | None = None
    _compressed = False
    # bytes that were read and not yet given back to the client's window
    uncredited_bytes = 0
    # the message that is being sent, and how many of its bytes were
    _outgoing = b""
    _sent_bytes = 0
    # what the call waits for: more of the request, or that all of a message is sent
    _input: asyncio.Future[None] | None = None
    _sending: asyncio.Future[None] | None = None
    # event-loop times: since when nothing of a message could be sent, and since when a stream of messages has
    # been waiting for the next one
    blocked_since: float | None = None
    idle_since: float | None = None
    # the server ends, and the stream is to end too
    _stopping = False

    def __init__(self, connection: Http2Connection, head: GrpcHead, stream_id: int) -> None:
        self.connection = connection
        self.head = head
        self.stream_id = stream_id
        self.client = connection.client
        self.send_window = connection.initial_send_window
        self.receive_window = connection.stream_window

    # ---- called by the connection

    def feed(self, data: bytes, *, is_last: bool) -> None:
        """Store data that has arrived."""
        if is_last:
            self.received = True
            if self._buffer is NO_BYTES and self.driver is None and _is_one_message(data):
                # nearly all requests: one message in one frame
                self.complete_body = data[PREFIX_BYTES:]
                return
        if self.response_complete:
            return
        if self._buffer is NO_BYTES:
            self._buffer = bytearray()
        self._buffer += data
        _wake(self._input)

    def end_received(self) -> None:
        """Note that the client has sent all that it will send."""
        self.received = True
        _wake(self._input)

    def take_message(self) -> int:
        """Set `complete_body` if the body is one message; returns how many bytes were taken."""
        size = len(self._buffer)
        if not _is_one_message(self._buffer):
            return 0
        self.complete_body, self._buffer = bytes(self._buffer[PREFIX_BYTES:]), NO_BYTES
        return size

    def drop_input(self) -> int:
        """Forget what has arrived and was not read; returns its size."""
        size = len(self._buffer)
        self._buffer = NO_BYTES
        return size

    def stop(self) -> None:
        """End a stream of messages that waits for the next one, because the server ends."""
        self._stopping = True
        _wake(self._input)

    def cut_off(self) -> None:
        """Cancel the call, because the server ends."""
        if self.driver is not None:
            self.driver.cancel()

    def ended(self, error: BaseException | None) -> None:
        """Tell the connection that the call has ended. Called by the driver."""
        self.driver = None
        connection = self.connection
        try:
            connection.call_ended(self, error)
        except Exception:
            # the client would wait for ever for the answer
            connection.transport.abort()
            raise

    def abandon(self) -> None:
        """End the call because the client has gone or cancelled it."""
        if self.client_gone:
            return
        self.client_gone = True
        if self._input is None and self._sending is None and not self.status and self.driver is not None:
            self.driver.cancel()
        _wake(self._input)
        _wake(self._sending)

    # ---- messages of the request

    @property
    def body_length(self) -> int | None:
        return self._message_length if self.complete_body is None else len(self.complete_body)

    @property
    def body_encoding(self) -> bytes | None:
        return self.head.encoding if self._compressed else None

    async def message_arrives(self) -> bool:
        """Wait until a message begins to arrive; False if the client sends no more.

        This may take any time, and ends when the server does.
        """
        while not self._buffer:
            if self.received:
                self._expect_client()
                return False
            if self._stopping:
                raise NotReadyError("the server is stopping: open a new stream")
            self.idle_since = self.connection.loop.time()
            try:
                await self._wait_for_input(None)
            finally:
                self.idle_since = None
        return True

    async def begin_message(self, deadline: float) -> bool:
        """Wait for the next message to begin, which `next_chunk` then returns; False if there is none."""
        while len(self._buffer) < PREFIX_BYTES:
            if self.received:
                self._expect_client()
                if self._buffer:
                    raise RequestError("body: expected a whole message, got only a part of its length")
                return False
            await self._wait_for_input(deadline)
        flag = self._buffer[0]
        if flag > 1:
            raise RequestError(f"body: expected a message that begins with 0 or 1, got {flag}")
        self._compressed = flag == 1
        if self._compressed and self.head.encoding in (None, b"identity"):
            raise RequestError("body: expected grpc-encoding with a compressed message, got none")
        self._message_left = self._message_length = int.from_bytes(self._buffer[1:PREFIX_BYTES])
        self._consume(PREFIX_BYTES)
        return True

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        """The next part of the present message, and whether more of it follows."""
        if self.complete_body is not None:
            data, self.complete_body = self.complete_body, None
            return data, False
        while not self._buffer and self._message_left:
            if self.received:
                self._expect_client()
                raise RequestError(
                    f"body: expected a message of {self._message_length} bytes, "
                    f"got {self._message_left} fewer"
                )
            await self._wait_for_input(deadline)
        data = self._consume(min(len(self._buffer), self._message_left))
        self._message_left -= len(data)
        return data, self._message_left > 0

    def _consume(self, size: int) -> bytes:
        """Take bytes out of the buffer, so that the client may send as many more."""
        data = bytes(self._buffer[:size])
        if size:
            del self._buffer[:size]
            self.connection.consumed(self, size)
        return data

    # ---- the answer

    def respond(self, response: Response) -> Awaitable[None] | None:
        if isinstance(response, ErrorResponse):
            self._write_error(response)
            return None
        connection, message = self.connection, response.body
        size = len(message) + PREFIX_BYTES
        if (
            size > MAX_FRAME_BYTES
            or size > self.send_window
            or size > connection.send_window
            or connection.write_paused
            or self.headers_sent
            or self.client_gone
        ):
            return self.respond_slowly(response)
        block, stream_id = self._header_block(), self.stream_id
        data = b"".join(
            (
                FRAME_HEADER.pack(0, len(block), HEADERS, END_HEADERS, stream_id),
                block,
                FRAME_HEADER.pack(0, size, DATA, 0, stream_id),
                b"\x00",
                len(message).to_bytes(4),
                message,
                FRAME_HEADER.pack(0, len(OK_TRAILERS), HEADERS, END_HEADERS | END_STREAM, stream_id),
                OK_TRAILERS,
            )
        )
        # the stream's own window matters no more
        connection.send_window -= size
        self.headers_sent = self.response_complete = True
        self.status = response.status
        connection.transport.write(data)
        return None

    async def respond_slowly(self, response: Response) -> None:
        await self.send_message(response.body)
        self.status = response.status
        self.finish()

    async def send_message(self, message: bytes) -> None:
        """Send one message, and return when the client's windows had room for it. Raises ClientGoneError."""
        self._expect_client()
        connection, encoding, flag = self.connection, self.head.answer_encoding, b"\x00"
        # smaller messages, which `respond` sends, are never compressed
        if encoding is not None and len(message) >= COMPRESSED_FROM_BYTES:
            compressed = await connection.app.compressed(message, encoding)
            if compressed is not None:
                message, flag = compressed, b"\x01"
            self._expect_client()
        if not self.headers_sent:
            self.headers_sent = True
            self._write(frame(HEADERS, END_HEADERS, self.stream_id, self._header_block()))
        self._outgoing, self._sent_bytes = b"%b%b%b" % (flag, len(message).to_bytes(4), message), 0
        if not self.send_more():
            loop = connection.loop
            self.blocked_since, self._sending = loop.time(), loop.create_future()
            connection.blocked[self] = None
            try:
                await self._sending
            finally:
                connection.blocked.pop(self, None)
                self.blocked_since = self._sending = None
        self._outgoing = b""
        self._expect_client()

    def send_more(self) -> bool:
        """Send as much of the message as the client's windows have room for; returns whether it was all."""
        connection, data = self.connection, self._outgoing
        before = self._sent_bytes
        while self._sent_bytes < len(data):
            room = min(self.send_window, connection.send_window, MAX_FRAME_BYTES)
            if room <= 0 or connection.write_paused:
                if self._sent_bytes > before and self.blocked_since is not None:
                    self.blocked_since = connection.loop.time()
                return False
            part = data[self._sent_bytes : self._sent_bytes + room]
            self.send_window -= len(part)
            connection.send_window -= len(part)
            connection.frame_counts.sent_frames += 1
            self._sent_bytes += len(part)
            self._write(frame(DATA, 0, self.stream_id, part))
        _wake(self._sending)
        return True

    def finish(self) -> None:
        """End the answer: the call has succeeded."""
        self.status = self.status or 200
        self.response_complete = True
        if not self.headers_sent:
            self.headers_sent = True
            self._write(frame(HEADERS, END_HEADERS, self.stream_id, self._header_block()))
        self._write(frame(HEADERS, END_HEADERS | END_STREAM, self.stream_id, OK_TRAILERS))

    def _write_error(self, response: ErrorResponse) -> None:
        """End the answer with an error, in trailers, which are all of the answer if nothing was sent."""
        block = b"" if self.headers_sent else self._header_block()
        self._answer_code = status_of(response)
        block += literal(b"grpc-status", b"%d" % self._answer_code)
        block += literal(b"grpc-message", encode_message(response.message))
        for name, value in response.headers:
            block += literal(name, value)
            if name == b"retry-after":
                # as the retries of gRPC's clients read it
                block += literal(b"grpc-retry-pushback-ms", value + b"000")
        self.headers_sent = self.response_complete = True
        self.status = response.status
        self._write(frame(HEADERS, END_HEADERS | END_STREAM, self.stream_id, block))

    def _header_block(self) -> bytes:
        request_id = self.id.encode()
        if len(request_id) > MAX_SHORT_ID:
            return self.head.ok_headers + literal(b"x-request-id", request_id)
        return b"%b%b%c%b" % (self.head.ok_headers, REQUEST_ID_NAME, len(request_id), request_id)

    def _write(self, data: bytes) -> None:
        if not self.client_gone:
            self.connection.transport.write(data)

    # ---- waiting

    async def _wait_for_input(self, deadline: float | None) -> None:
        """Wait until more of the request may have arrived. Raises TimeoutError at the deadline."""
        self._expect_client()
        loop = self.connection.loop
        self._input = waiting = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, _time_out, waiting)
        try:
            await waiting
        finally:
            self._input = None
            if timer is not None:
                timer.cancel()
        self._expect_client()

    def _expect_client(self) -> None:
        if self.client_gone:
            raise ClientGoneError


def _is_one_message(data: bytes | bytearray) -> bool:
    """Whether data is one whole message that is not compressed."""
    return (
        len(data) >= PREFIX_BYTES
        and data[0] == 0
        and int.from_bytes(data[1:PREFIX_BYTES]) == len(data) - PREFIX_BYTES
    )


def _time_out(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
