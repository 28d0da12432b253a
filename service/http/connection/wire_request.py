"""A request on a connection of our own server: receives its body and writes its answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from starlette.types import Message

from turnpike.service.requests.request import ClientGoneError, Request, RequestHead
from turnpike.service.requests.response import Response

if TYPE_CHECKING:
    from turnpike.service.http.connection.protocol import HttpProtocol

# reading pauses while more bytes of a body than this wait for the application
HIGH_WATER_BYTES = 1 << 16
# At most this many bytes of a body are read after its request was answered, to keep the connection open. A
# connection with more to come is closed instead.
MAX_IGNORED_BYTES = 1 << 20
# Bytes of an answer that are written at once. The rest waits until the client has read most of them: a TLS
# transport would encrypt a whole answer at once and say nothing of a client that does not read.
SLICE_BYTES = 1 << 18
# the empty buffer that all requests share until a part of their body arrives; it is never changed
NO_BYTES = bytearray()
# bytes that no header of an answer may contain, because they would end the line or the head
LINE_BREAKS = re.compile(rb"[\x00\r\n]")


class WireRequest(Request):
    """A request that arrived on the connection of an HttpProtocol and is answered there."""

    # all of the body has arrived
    received = False
    response_complete = False
    # the connection is closed after the answer
    closes = False
    # the part of the body that has arrived and was not read yet
    _buffer: bytearray = NO_BYTES
    # bytes of the answer's body still to be written; None if its length is not known
    _bytes_left: int | None = None
    # "100 Continue" was sent
    _continued = False
    # the answer's body comes in chunks, each with its size
    _chunked = False
    # done when more of the body arrives, the client goes or the answer is complete; an application may wait
    # for this in several tasks at once
    _waiters: tuple[asyncio.Future[None], ...] = ()

    def __init__(
        self, connection: HttpProtocol, head: RequestHead, complete_body: bytes | None = None
    ) -> None:
        self.connection = connection
        self.head = head
        self.client = connection.client
        if complete_body is not None:
            self.complete_body = complete_body
            self.received = True

    # ---- called by the connection

    def feed(self, data: bytes) -> None:
        """Store a part of the body that has arrived."""
        if self.response_complete:
            return
        if self._buffer is NO_BYTES:
            self._buffer = bytearray()
        self._buffer += data
        if len(self._buffer) > HIGH_WATER_BYTES:
            self.connection.pause_reading()
        self._wake()

    def body_received(self) -> None:
        """Note that all of the body has arrived."""
        self.received = True
        self._wake()

    def take_buffered_body(self) -> None:
        """Set `complete_body` if all of the body has arrived. Called when the request is started."""
        if self.received:
            self.complete_body, self._buffer = bytes(self._buffer), NO_BYTES
            # a large body has paused reading, but a client that leaves is only noticed while reading
            self.connection.resume_reading()

    def cut_off(self) -> None:
        """Cancel the request, because the server ends."""
        if self.driver is not None:
            self.driver.cancel()

    def ended(self, error: BaseException | None) -> None:
        """Tell the connection that the request has ended. Called by the driver."""
        self.driver = None
        connection = self.connection
        try:
            connection.request_ended(self, error)
        except Exception:
            # the client would wait for ever for the answers that were to follow
            connection.transport.abort()
            raise

    def abandon(self) -> None:
        """End the request because the client has gone: reading its body raises, waiting ends.

        One that outlives its client goes on. It is told by the message `http.disconnect`, or calls
        `on_client_gone`.
        """
        if self.client_gone:
            return
        self.client_gone = True
        if self.on_client_gone is not None:
            self.on_client_gone()
        if self._waiters:
            self._wake()
        elif not self.status and self.driver is not None and not self.outlives_client:
            self.driver.cancel()

    # ---- called by the application

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        if self.complete_body is not None:
            # not kept here, where the memory budget does not count it
            data, self.complete_body = self.complete_body, None
            return data, False
        connection = self.connection
        if self.head.expects_continue and not self._continued and not self.status:
            self._continued = True
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._buffer or self.received or self.client_gone):
            connection.resume_reading()
            await self._wait(deadline)
        if self.client_gone:
            raise ClientGoneError
        data, self._buffer = bytes(self._buffer), NO_BYTES
        # a client that leaves is only noticed while reading
        connection.resume_reading()
        return data, not self.received

    def respond(self, response: Response) -> Awaitable[None] | None:
        if self.connection.write_paused:
            return self.respond_slowly(response)
        body = b"" if self.head.method == "HEAD" else response.body
        self._write_head(response, body)
        self.response_complete = True
        return None

    async def respond_slowly(self, response: Response) -> None:
        await self.connection.drain()
        self._write_head(response)
        await self._write_slices(b"" if self.head.method == "HEAD" else response.body)
        self.response_complete = True

    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        head, connection = self.head, self.connection
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.http_version,
            "server": connection.server,
            "client": self.client,
            "scheme": connection.scheme,
            "root_path": "",
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path.encode("latin-1"),
            "query_string": head.query,
            # a copy: other requests share the head, and an application may change the list
            "headers": list(head.headers),
            "state": {},
        }
        body_read = False

        async def receive() -> Message:
            nonlocal body_read
            if not body_read:
                try:
                    data, more = await self.next_chunk()
                except ClientGoneError:
                    return {"type": "http.disconnect"}
                body_read = not more
                return {"type": "http.request", "body": data, "more_body": more}
            while not (self.client_gone or self.response_complete):
                await self._wait(None)
            return {"type": "http.disconnect"}

        return scope, receive, self._send

    # ---- internals

    def _write_head(self, response: Response, first_bytes: bytes = b"") -> None:
        """Write the head of a whole answer, and the first bytes after it in the same piece."""
        status = response.status
        connection = self.connection
        shared = connection.shared
        if response.close or not self.received or not self.head.keep_alive or shared.draining:
            self.closes = response.close or self._is_last()
        data = b"%b%b%b%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (
            shared.first_lines(status),
            response.lines,
            self.extra_lines,
            self._connection_line(),
            len(response.body),
            self.id.encode(),
            first_bytes,
        )
        # only now: if there was no memory for the answer, an error can still be sent
        self.status = status
        if not self.client_gone:
            connection.transport.write(data)

    def _connection_line(self) -> bytes:
        """The header that says whether the connection stays open; none if it does and HTTP/1.1 implies it."""
        if self.closes:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self.head.http_version == "1.0" else b""

    async def _write_slices(self, data: bytes) -> None:
        """Write large data, and return when the client has read nearly all of it, or has gone."""
        connection = self.connection
        for start in range(0, len(data), SLICE_BYTES):
            if self.client_gone:
                return
            # a copy: the transport keeps what it could not send yet, and a view would keep all of the data
            connection.transport.write(data[start : start + SLICE_BYTES])
            await connection.drain()

    async def _send(self, message: Message) -> None:
        """Send a message of an ASGI application: the start or a part of an answer."""
        connection = self.connection
        if connection.write_paused and not self.client_gone:
            await connection.drain()
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        else:
            await self._write_part(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: Any) -> None:
        """Write the status and the headers of an answer whose body comes in parts."""
        if self.status:
            raise RuntimeError("expected one start of an answer, got another")
        self.closes = self._is_last()
        lines = []
        length: bytes | None = None
        own_names = set()
        for original_name, value in headers:
            name = original_name.lower()
            if LINE_BREAKS.search(name) or LINE_BREAKS.search(value):
                raise RuntimeError("expected headers without line breaks, got one with a line break")
            if name == b"connection":
                self.closes = self.closes or value.lower() == b"close"
                continue
            if name == b"transfer-encoding":
                # how the body is sent is decided here
                continue
            if name == b"content-length":
                length = value
            own_names.add(name)
            lines.append(b"%b: %b\r\n" % (original_name, value))
        if b"x-request-id" not in own_names:
            lines.append(b"x-request-id: %b\r\n" % self.id.encode())
        has_body = self.head.method != "HEAD" and status not in (204, 304)
        self._bytes_left = int(length) if has_body and length is not None else None if has_body else 0
        if self._bytes_left is None:
            if self.head.http_version == "1.0":
                # only the end of the connection tells the end of the answer
                self.closes = True
            else:
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(self._connection_line())
        self.status = status
        if not self.client_gone:
            connection = self.connection
            connection.transport.write(
                b"%b%b%b\r\n"
                % (
                    connection.shared.first_lines_without(own_names, status),
                    b"".join(lines),
                    self.extra_lines,
                )
            )

    async def _write_part(self, body: bytes, *, more: bool) -> None:
        if not self.status or self.response_complete:
            raise RuntimeError("expected a part of an answer that has begun and not ended")
        if self.head.method == "HEAD" or self.status in (204, 304):
            body = b""
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        elif self._bytes_left is not None:
            self._bytes_left -= len(body)
            if self._bytes_left < 0 or (self._bytes_left and not more):
                raise RuntimeError("expected an answer as long as its Content-Length, got another length")
        if len(body) > SLICE_BYTES:
            await self._write_slices(body)
        elif body and not self.client_gone:
            self.connection.transport.write(body)
        if not more:
            self.response_complete = True
            self._wake()

    def _is_last(self) -> bool:
        """Whether the connection must be closed after the answer that begins now."""
        head, connection = self.head, self.connection
        if not head.keep_alive:
            return True
        if not self.received and (
            head.content_length is None or head.content_length > MAX_IGNORED_BYTES or head.expects_continue
        ):
            # the rest of the body may be too long to read and ignore
            return True
        return connection.shared.draining and connection.newest_request is self

    async def _wait(self, deadline: float | None) -> None:
        """Wait until more of the body has arrived, the client has gone, or the answer is complete."""
        loop = self.connection.loop
        waiting = loop.create_future()
        self._waiters += (waiting,)
        timer = None if deadline is None else loop.call_at(deadline, _time_out, waiting)
        try:
            await waiting
        finally:
            self._waiters = tuple(other for other in self._waiters if other is not waiting)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _time_out(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())
