"""HTTP/1.1 on one connection: pipelining, limits on time, and a graceful end."""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import socket
import termios
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from turnpike.service.http.connection.http_state import (
    BODY,
    CLOSED,
    HALF_CLOSED,
    HEAD,
    LINGERING,
    NEW,
    READY,
    REFUSED,
)
from turnpike.service.http.connection.malformed import MalformedRequestError, refusal
from turnpike.service.http.connection.request_parser import RequestParser
from turnpike.service.http.connection.shared_state import HttpApplication, SharedState
from turnpike.service.http.connection.unread_output import UnreadOutput
from turnpike.service.http.connection.wire_request import WireRequest
from turnpike.service.requests.driver import Driver
from turnpike.service.requests.request import RequestHead

log = logging.getLogger(__name__)

# Pause in reading from a client whose request found the queue full. A client that retries at once would
# take time from the requests that are being answered.
OVERLOAD_PAUSE_SECONDS = 0.25
# pipelined requests of one client to start before other connections get a turn of the event loop
MAX_REQUESTS_PER_TURN = 16
# output that a TLS transport holds before it pauses: as much as others do
MAX_TLS_BUFFER_BYTES = 1 << 16
# After the end of a client's input, seconds until a request without an answer makes us ask whether the client
# still reads, and seconds until we look again. Most answers are sent before, so few clients are asked.
ASK_SECONDS = 0.03
# asks, and is no answer: clients of HTTP/1.1 skip it, and the system of a client that has closed resets
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# the state of a connection that was reset, from net/tcp_states.h; the first byte of Linux's tcp_info
TCP_CLOSE = 7


class HttpProtocol(asyncio.Protocol):
    """One connection. Its limits need no timers: the server calls `check_timeouts` about once a second."""

    transport: asyncio.Transport

    def __init__(
        self,
        app: HttpApplication,
        shared: SharedState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.app = app
        self.limits = app.connection_limits
        self.shared = shared
        self._heads = shared.heads
        self.loop = loop
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.scheme = "http"
        self.state = NEW
        # Both are independent of the state. Reading pauses for a request's body, for the pipeline and for a
        # client that found the queue full; the transport says when its output is full.
        self.read_paused = self.write_paused = False
        # done when the transport can take more output; awaited by `drain`
        self._writable: asyncio.Future[None] | None = None

        # the request being answered, those that wait behind it, and the one that arrived last
        self._current: WireRequest | None = None
        self.pipeline: deque[WireRequest] = deque()
        self.newest_request: WireRequest | None = None
        # True while `_advance` runs: a request that ends at once must not call it again
        self._advancing = False

        # created when data arrives that the cache of heads does not know
        self._parser: RequestParser | None = None

        # Event-loop time from which the time limit of the state counts: when the connection was made, a head
        # began, a request ended, or LINGERING began.
        self._limit_start = self.loop.time()
        # sent after all answers in REFUSED, and in HALF_CLOSED after it
        self._final_response = b""
        self._unread_output = UnreadOutput()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        if transport.get_extra_info("sslcontext"):
            self.scheme = "https"
            # by default, a TLS transport holds half a megabyte before it pauses
            self.transport.set_write_buffer_limits(high=MAX_TLS_BUFFER_BYTES)
        self.shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the requests that wait for their run, so that no model runs for a client that has left."""
        self.shared.connections.discard(self)
        self.state = CLOSED
        self.pipeline.clear()
        if self._current is not None:
            self._current.abandon()
        self.resume_writing()
        if self.shared.on_connection_lost is not None:
            self.shared.on_connection_lost()
        # The parser and the last request refer to this connection. Without this, all three would keep the
        # last bytes of the client until a garbage collection, which is rare.
        if self._parser is not None:
            self._parser.close()
        self._parser = self.newest_request = None

    def eof_received(self) -> bool:
        """Keep the connection open while complete requests wait for their answers.

        The client may have closed, or only stopped sending (the connection is half-closed): its system says
        the same in both cases, until something is sent to it. Without TLS and in HTTP/1.1,
        `_ask_if_client_reads` finds out. In HTTP/1.0 nothing can be sent before the answer, so only GET is
        answered, which runs no model.
        """
        if self.state >= LINGERING or self.scheme == "https" or not _is_tcp(self.transport):
            return False
        if self.state is not HALF_CLOSED:
            # nothing is read while requests wait behind the current one, so it is the last
            current = self._current
            if current is None or not current.received or not _may_be_answered(current.head):
                return False
            # a part of a head never becomes a request
            self.state = HALF_CLOSED
            self.loop.call_later(ASK_SECONDS, self._ask_if_client_reads, CONTINUE)
        return self.busy

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state >= REFUSED:
            return
        if state <= READY and (head := self._heads.find(data)) is not None:
            # the data is all of a request
            self.state = READY
            request = self.newest_request = WireRequest(self, head, data[head.head_bytes :])
            if self._current is None and not self.pipeline:
                self._start(request)
            else:
                self.pipeline.append(request)
                self._advance()
            return
        parser = self._parser
        if parser is None:
            parser = self._parser = RequestParser(self)
        try:
            parser.feed(data)
        except MalformedRequestError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            # a variable for it would be a reference cycle: the error's traceback refers to this call
            self._refuse(parser.explain(error))
        if self.pipeline or self.state is REFUSED:
            self._advance()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # ---- called by the parser

    def head_began(self) -> None:
        """Note that a part of a head has arrived."""
        if self.state is not HEAD:
            self.state = HEAD
            self._limit_start = self.loop.time()

    def head_received(self, head: RequestHead) -> None:
        """Queue the request with this head. Its body may follow."""
        self.state = BODY
        self.newest_request = WireRequest(self, head)
        self.pipeline.append(self.newest_request)

    def body_received(self) -> None:
        """Note that all of the newest request has arrived."""
        self.state = READY
        if self.newest_request is not None:
            self.newest_request.body_received()

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
        return self.state is HEAD or self._current is not None or bool(self.pipeline)

    @property
    def has_pending_output(self) -> bool:
        """Whether the client would miss an answer if the connection ended now."""
        return self.busy or self.transport.get_write_buffer_size() > 0

    def check_timeouts(self, now: float) -> None:
        """Close the connection, or refuse its request, if it has exceeded a time limit."""
        elapsed = now - self._limit_start
        limits = self.limits
        if self._unread_output.seconds(self.transport, now) > limits.idle_seconds:
            self.transport.abort()
        elif self.state >= LINGERING:
            if elapsed > limits.linger_seconds:
                self.transport.close()
        elif self.state is HEAD:
            if elapsed > limits.header_seconds and not self.read_paused:
                within = f"{limits.header_seconds:g} seconds (--header-seconds)"
                self._refuse(
                    MalformedRequestError(
                        408, f"the request line and headers: expected all within {within}, got only a part"
                    )
                )
                self._advance()
        elif not self.busy:
            is_new = self.state is NEW
            if elapsed > (limits.header_seconds if is_new else limits.idle_seconds):
                self.transport.close()

    def begin_drain(self) -> None:
        """Do nothing: each answer says that it is the last, as `SharedState.draining` is set."""

    def cut_off(self) -> None:
        """End the connection at once, because the server ends."""
        self.transport.abort()

    def close_if_idle(self, since: float) -> None:
        """Close the connection if it had no input or output since that time, and has no unread input."""
        if (
            not self.has_pending_output
            and self.state < LINGERING
            and self._limit_start <= since
            and not self._has_unread_input()
        ):
            self.transport.close()

    # ---- requests to answers, in order

    def _advance(self) -> None:
        """Start the next request, unless one is being answered; after the last, send the final response."""
        if self._advancing:
            return
        self._advancing = True
        started = 0
        try:
            while self._current is None and self.pipeline and self.state < LINGERING:
                if started == MAX_REQUESTS_PER_TURN:
                    self.loop.call_soon(self._advance)
                    break
                started += 1
                self._start(self.pipeline.popleft())
        except Exception:
            # such as a MemoryError: nothing would answer this request or those behind it
            self.transport.abort()
            raise
        finally:
            self._advancing = False
        if self.pipeline:
            self.pause_reading()
        elif self._current is None and REFUSED <= self.state < LINGERING:
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
        if request is self.newest_request and request.received:
            # an idle connection must not keep the body and the results of its last request
            self.newest_request = None
        self._limit_start = self.loop.time()
        state = self.state
        if state >= LINGERING or self.transport.is_closing():
            return
        if not request.response_complete:
            # the client would take the next answer for the rest of this one
            self.transport.close() if error is None else self.transport.abort()
        elif request.closes:
            self._end()
        elif self.pipeline or state >= REFUSED:
            self.resume_reading()
            self._advance()
        elif request.overloaded:
            self.pause_reading()
            self.loop.call_later(OVERLOAD_PAUSE_SECONDS, self.resume_reading)
        elif self.read_paused:
            self.resume_reading()

    # ---- the end

    def _end(self) -> None:
        """Close after the last answer, gracefully if the client may still be sending."""
        if self.pipeline or self.state > READY:
            self.close_gracefully()
        else:
            self.transport.close()

    def close_gracefully(self) -> None:
        """Close after the client had time to read: closing with unread input would reset the connection."""
        if self.state >= LINGERING or self.transport.is_closing():
            return
        if self.state is HALF_CLOSED:
            self.transport.close()
            return
        self.state = LINGERING
        self._limit_start = self.loop.time()
        self.pipeline.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.resume_reading()

    def _refuse(self, error: MalformedRequestError) -> None:
        """Answer malformed input after all requests before it, and then close."""
        request_id = self.app.count_refused(error.status)
        log.info(
            "malformed request: %d, %s",
            error.status,
            error,
            extra={"client": self.client[0] if self.client else None, "id": request_id},
        )
        self._final_response = refusal(error, self.shared.first_lines(error.status), request_id)
        if self.state is BODY and self.newest_request is not None:
            self._drop(self.newest_request)
        self.state = REFUSED

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

    def _ask_if_client_reads(self, data: bytes = b"") -> None:
        """Drop the requests if the client has closed. `data` is sent to find out, unless an answer is."""
        current = self._current
        if current is None or self.state >= LINGERING or self.transport.is_closing():
            return
        connection = self.transport.get_extra_info("socket")
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE:
            self.transport.abort()
            return
        if data and not current.status and current.head.http_version == "1.1":
            self.transport.write(data)
        self.loop.call_later(ASK_SECONDS, self._ask_if_client_reads)

    def _has_unread_input(self) -> bool:
        """Whether the socket has input that was not read yet."""
        size = array.array("i", [0])
        fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
        return bool(size[0])


def _may_be_answered(head: RequestHead) -> bool:
    """Whether a request is answered although the client may have closed."""
    return head.http_version == "1.1" or head.method in ("GET", "HEAD")


def _is_tcp(transport: asyncio.Transport) -> bool:
    """Whether the state of the connection can be read: over TCP, on Linux."""
    connection = transport.get_extra_info("socket")
    return connection.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_INFO")


def _address(info: Any) -> tuple[str, int] | None:
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) and len(info) >= 2 else None


def http_protocols(app: HttpApplication, shared: SharedState) -> Callable[[], HttpProtocol]:
    """A function that creates the protocol of each connection."""
    loop = asyncio.get_running_loop()
    return lambda: HttpProtocol(app, shared, loop)
