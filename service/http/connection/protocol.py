"""HTTP/1.1 on one connection: parsing, pipelining, limits on size and time, and a graceful end.

`HttpProtocol` has the constructor that uvicorn's option `http=` expects. Our own `Server` runs it, which
spreads connections over the workers and drains without losing a request.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import termios
import urllib.parse
from collections import deque
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from service.http.connection.malformed import MalformedRequestError, body_length, head_size, rejection
from service.http.connection.shared_state import SharedState
from service.http.connection.wire_request import WireRequest
from service.http.driver import Driver
from service.http.request import Headers, RequestHead

log = logging.getLogger(__name__)

# Pause in reading from a client whose request found the queue full. A client that retries at once would
# take time from the requests that are being answered.
OVERLOAD_PAUSE_SECONDS = 0.25
# pipelined requests of one client to start before other connections get a turn of the event loop
MAX_REQUESTS_PER_TURN = 16
# At most this many bytes of a head (method, version, line ends) are left out by `head_size`. As long as a
# head is incomplete, all bytes that arrive are counted, these included.
UNMEASURED_HEAD_BYTES = 32


class HttpProtocol(asyncio.Protocol):
    """One connection. It has no timers: the server calls `check_timeouts` about once a second."""

    transport: asyncio.Transport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.app = config.loaded_app
        self.limits = self.app.connection_limits
        self.server_state = server_state
        self.shared = SharedState.of(server_state)
        self.loop = _loop or asyncio.get_running_loop()
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.scheme = "http"
        self.read_paused = self.write_paused = False
        # done when the transport can take more output; awaited by `drain`
        self._writable: asyncio.Future[None] | None = None

        # the request being answered, those that wait behind it, and the one that arrived last
        self._current: WireRequest | None = None
        self.pipeline: deque[WireRequest] = deque()
        self.newest: WireRequest | None = None
        self._advancing = False

        # the request head that is being parsed
        self._parser: httptools.HttpRequestParser = self._new_parser()
        self._in_head = False
        self._url = b""
        self._headers: Headers = []
        self._expects_continue = False
        self._upgrading = False
        self._head_bytes = 0
        self._head_began = False
        self._head_may_be_long = False
        # bytes of trailers, and of all data that arrived since the last part of the present body
        self._trailer_bytes = 0
        self._bytes_since_body = 0
        # the bytes being parsed, if they begin where a request may begin, so that their head can be cached
        self._cacheable_data = b""

        # event-loop time at which the present state began: idle, receiving a head, or closing
        self._since = self.loop.time()
        self._used = False
        # sent when all requests are answered; once it is set, no more input is parsed
        self._final_response: bytes | None = None
        # all answers are sent; further input is ignored
        self._closing = False
        # bytes of answers that the client has not read, and the time at which this number last changed
        self._unsent = 0
        self._unsent_since = 0.0

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        if transport.get_extra_info("sslcontext"):
            self.scheme = "https"
        self.server_state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the requests that wait for their run.

        Until something is sent, a client that has only stopped sending looks like one that has closed. Both
        count as gone, so that no model runs for a client that has left.
        """
        self.server_state.connections.discard(self)
        self._closing = True
        self.pipeline.clear()
        if self._current is not None:
            self._current.abandon()
        self.resume_writing()
        if self.shared.on_connection_lost is not None:
            self.shared.on_connection_lost()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._final_response is not None:
            return
        newest = self.newest
        at_start = not self._in_head and (newest is None or newest.received)
        if at_start and (found := self.shared.heads.find(data)) is not None:
            self._receive_whole(data, *found)
            return
        try:
            self._receive(data, at_start=at_start)
        except MalformedRequestError as error:
            self._reject(error)
        except httptools.HttpParserError as error:
            # the context is set if the error was raised in one of our callbacks
            cause = error.__context__
            if not isinstance(cause, MalformedRequestError):
                cause = MalformedRequestError(400, "the request: expected HTTP/1.1, got something else")
            self._reject(cause)
        if self.pipeline or self._final_response is not None:
            self._advance()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # ---- called by requests

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless requests wait to be answered: a client must not fill the memory with them."""
        if self.read_paused and not self.pipeline:
            self.read_paused = False
            self.transport.resume_reading()

    async def drain(self) -> None:
        """Wait until the client has read most of the output."""
        while self.write_paused:
            self._writable = self.loop.create_future()
            await self._writable

    # ---- called by the server

    @property
    def busy(self) -> bool:
        """Whether a request is being received or answered."""
        return self._in_head or self._current is not None or bool(self.pipeline)

    @property
    def has_pending_output(self) -> bool:
        """Whether the client would miss an answer if the connection ended now."""
        return self.busy or self.transport.get_write_buffer_size() > 0

    def check_timeouts(self, now: float) -> None:
        """Close the connection, or reject its request, if it has exceeded a time limit."""
        elapsed = now - self._since
        limits = self.limits
        if self._stalled_seconds(now) > limits.idle_seconds:
            self.transport.abort()
        elif self._closing:
            if elapsed > limits.linger_seconds:
                self.transport.close()
        elif self._in_head:
            if elapsed > limits.header_seconds and not self.read_paused:
                within = f"{limits.header_seconds:g} seconds"
                self._reject(
                    MalformedRequestError(408, f"the headers: expected all of them within {within}, got some")
                )
                self._advance()
        elif not self.busy and elapsed > (limits.idle_seconds if self._used else limits.header_seconds):
            self.transport.close()

    def close_if_idle(self, since: float) -> None:
        """Close the connection if it had no input or output since that time, and has no unread input."""
        if (
            not self.has_pending_output
            and not self._closing
            and self._since <= since
            and not self._has_unread_input()
        ):
            self.transport.close()

    def shutdown(self) -> None:
        """Make the next answer the last. Called by uvicorn's own server when it ends."""
        self.shared.draining = True
        if not self.busy:
            self.transport.close()

    # ---- bytes to requests

    def _receive_whole(self, data: bytes, head: RequestHead, start: int, _: int) -> None:
        """Start or queue the request that is all of `data`, with the body at `start`, without the parser."""
        self._used = True
        request = self.newest = WireRequest(self, head)
        request.complete_body = data[start:]
        request.received = True
        if self._current is None and not self.pipeline:
            self._start(request)
        else:
            self.pipeline.append(request)
            self._advance()

    def _receive(self, data: bytes, *, at_start: bool) -> None:
        """Parse bytes from the client, and queue the requests in them.

        `at_start` is True if a request begins with them.
        """
        newest = self.newest
        self._cacheable_data = data if at_start else b""
        # a head within data of at most this length cannot be too long
        self._head_may_be_long = self._in_head or len(data) > self.limits.max_header
        self._head_began = False
        self._parse(memoryview(data))
        if self._in_head:
            if not self._head_began:
                self._head_bytes += len(data)
            elif at_start and self.newest is newest:
                self._head_bytes = len(data.lstrip(b"\r\n"))
            else:
                # where in `data` the head began is not known, so of `data` only complete headers count
                self._head_bytes = head_size(self._url, self._headers)
            self._check_head_size(self._head_bytes - UNMEASURED_HEAD_BYTES)
        elif self.newest is not None and not self.newest.received:
            # what arrives without a part of the body is a chunk's header or trailers, which may have no end
            self._bytes_since_body += len(data)
            self._check_trailer_size(self._bytes_since_body - len(data))

    def _parse(self, data: memoryview) -> None:
        """Feed the parser. A request with an Upgrade header is parsed again without it.

        The parser stops after the head of such a request, because the other protocol would follow.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                method = self._parser.get_method()
                if method == b"CONNECT":
                    message = "the method: expected one for servers, got CONNECT, which is for proxies"
                    raise MalformedRequestError(400, message) from None
                lines = [b"%b %b HTTP/%b" % (method, self._url, self._parser.get_http_version().encode())]
                lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
                self._parser = self._new_parser()
                self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))
            else:
                return

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # a client may send requests after one with `Connection: close`; they are ignored, not an error
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._expects_continue = self._upgrading = False
        self._in_head = self._used = self._head_began = True
        self._head_bytes = self._trailer_bytes = self._bytes_since_body = 0
        self._since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # a trailer, which follows a body in chunks; it is ignored, since it must not count as a header
            self._trailer_bytes += len(name) + len(value)
            self._check_trailer_size(self._trailer_bytes)
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_may_be_long:
            self._check_head_size(head_size(self._url, self._headers))
        parser = self._parser
        version = parser.get_http_version()
        length = body_length(version, self._headers)
        if parser.should_upgrade():
            self._upgrading = True
            return
        self._in_head = False
        url = httptools.parse_url(self._url)
        raw_path = url.path.decode("ascii")
        head = RequestHead(
            parser.get_method().decode("ascii"),
            raw_path,
            urllib.parse.unquote(raw_path) if "%" in raw_path else raw_path,
            url.query or b"",
            self._headers,
            http_version=version,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            content_length=length,
            expects_continue=self._expects_continue,
        )
        self.newest = WireRequest(self, head)
        self.pipeline.append(self.newest)

    def on_body(self, body: bytes) -> None:
        self._bytes_since_body = 0
        if not self._upgrading and self.newest is not None:
            self.newest.feed(body)

    def on_message_complete(self) -> None:
        newest = self.newest
        if self._upgrading or newest is None:
            return
        newest.body_received()
        if self._cacheable_data:
            self.shared.heads.add(self._cacheable_data, newest.head)

    def _check_head_size(self, size: int) -> None:
        if size > self.limits.max_header:
            raise MalformedRequestError(
                431, f"the headers: expected at most {self.limits.max_header} bytes, got more"
            )

    def _check_trailer_size(self, size: int) -> None:
        if size > self.limits.max_header:
            raise MalformedRequestError(
                431, f"the trailers: expected at most {self.limits.max_header} bytes, got more"
            )

    # ---- requests to answers, in order

    def _advance(self) -> None:
        """Start the next request, unless one is being answered; after the last, send the final response."""
        if self._advancing:
            return
        self._advancing = True
        started = 0
        while self._current is None and self.pipeline and not self._closing:
            if started == MAX_REQUESTS_PER_TURN:
                self.loop.call_soon(self._advance)
                break
            started += 1
            self._start(self.pipeline.popleft())
        self._advancing = False
        if self.pipeline:
            self.pause_reading()
        elif self._current is None and self._final_response is not None and not self._closing:
            self.transport.write(self._final_response)
            self.close_gracefully()

    def _start(self, request: WireRequest) -> None:
        self._current = request
        if request.complete_body is None:
            request.take_buffered_body()
        self.shared.running.add(request)
        driver = request.driver = Driver(self.app.handle(request), request.ended)
        driver.step()

    def request_ended(self, request: WireRequest, error: BaseException | None) -> None:
        """Go on to the next request, or close. Called by a request that has ended."""
        self.shared.running.discard(request)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("request %s failed", request.id, exc_info=error)
        if request is not self._current:
            return
        self._current = None
        self._since = self.loop.time()
        self.server_state.total_requests += 1
        if self._closing or self.transport.is_closing():
            return
        if not request.response_complete:
            # the client would take the next answer for the rest of this one
            self.transport.close() if error is None else self.transport.abort()
        elif request.closes:
            self._end()
        else:
            if request.overloaded and not self.pipeline and self._final_response is None:
                self.pause_reading()
                self.loop.call_later(OVERLOAD_PAUSE_SECONDS, self.resume_reading)
            elif self.read_paused:
                self.resume_reading()
            if self.pipeline or self._final_response is not None:
                self._advance()

    # ---- the end

    def _end(self) -> None:
        """Close after the last answer, gracefully if the client may still be sending."""
        newest = self.newest
        still_receiving = self._in_head or (newest is not None and not newest.received)
        if self.pipeline or still_receiving or self._final_response is not None:
            self.close_gracefully()
        else:
            self.transport.close()

    def close_gracefully(self) -> None:
        """Close after the client had time to read: closing with unread input would reset the connection."""
        if self._closing or self.transport.is_closing():
            return
        self._closing, self._in_head = True, False
        self._since = self.loop.time()
        self.pipeline.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.resume_reading()

    def _reject(self, error: MalformedRequestError) -> None:
        """Answer malformed input after all requests before it, and then close."""
        request_id = self.app.count_rejected(error.status)
        log.info(
            "malformed request: %d, %s",
            error.status,
            error,
            extra={"client": self.client, "id": request_id},
        )
        self._final_response = rejection(error, self.server_state.default_headers, request_id)
        newest = self.newest
        if newest is not None and not newest.received and not self._in_head:
            self._drop(newest)
        self._in_head = False

    def _drop(self, request: WireRequest) -> None:
        """Drop a request whose body is malformed."""
        if self.pipeline and self.pipeline[-1] is request:
            self.pipeline.pop()
        elif self._current is request:
            self._current = None
            if request.status:
                # an answer has begun, so no error can be sent
                self._final_response = b""
            request.abandon()

    def _stalled_seconds(self, now: float) -> float:
        """Seconds for which the client has read nothing of its answers."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        return now - self._unsent_since

    def _has_unread_input(self) -> bool:
        """Whether the socket has input that was not read yet."""
        size = array.array("i", [0])
        fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
        return bool(size[0])


def _address(info: Any) -> tuple[str, int] | None:
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) and len(info) >= 2 else None
