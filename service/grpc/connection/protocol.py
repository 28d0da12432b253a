"""A connection of a gRPC client: starts its calls, limits its time, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.connection.ends import End, GrpcConnectionApplication
from turnpike.service.grpc.connection.frames import (
    HEADERS,
    MAX_STREAM_ID,
    PING,
    ErrorCode,
    Http2Error,
    frame,
    goaway_frame,
    reset_frame,
)
from turnpike.service.grpc.connection.header_turns import MAX_WORK_AT_ONCE, HeaderTurns
from turnpike.service.grpc.connection.http2_connection import Http2Connection
from turnpike.service.grpc.connection.http2_state import (
    CLOSED,
    GOING_AWAY,
    LINGERING,
    OPEN,
    PREFACE,
    REFUSING,
)
from turnpike.service.grpc.connection.preface import HTTP1_ANSWER, Http1Error
from turnpike.service.http.connection.shared_state import SharedState
from turnpike.service.http.connection.unread_output import UnreadOutput
from turnpike.service.requests.driver import Driver

log = logging.getLogger(__name__)

# how a client of TLS names HTTP/2
ALPN = ("h2",)
# calls of one client to start before other connections get a turn of the event loop
MAX_CALLS_PER_TURN = 64
# output that a TLS transport holds before it pauses: as much as others do
MAX_TLS_BUFFER_BYTES = 1 << 16
# contents of our own ping
PING_BYTES = b"turnpike"
TYPE_OF_HEADERS = bytes((HEADERS,))


class GrpcProtocol(Http2Connection, asyncio.Protocol):
    """One connection. Its limits need no timers: the server calls `check_timeouts` about once a second."""

    def __init__(self, app: GrpcConnectionApplication, shared: SharedState, turns: HeaderTurns) -> None:
        super().__init__(app)
        self._turns = turns
        self.shared = shared
        self._unread_output = UnreadOutput()
        # further calls start in the next turn of the event loop
        self._starts_later = False

        # a part of a frame or of the preface, or everything behind many headers
        self._tail = b""
        # Many headers are left in the tail, in any state before LINGERING. Later turns of the event loop
        # decode them, and until then nothing more is read.
        self._is_behind = False
        # event-loop times: since when the connection has been idle or LINGERING, and GOING_AWAY
        self._since = self._going_away_since = self._last_input
        # our ping was sent since the last input
        self._pinged = False
        # why the connection ends, if that is not because of the client
        self._end_reason: End | None = None

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        self.shared.connections.add(self)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            # by default, a TLS transport holds half a megabyte before it pauses
            self.transport.set_write_buffer_limits(high=MAX_TLS_BUFFER_BYTES)
            if (chosen := tls.selected_alpn_protocol()) not in ALPN:
                # the handshake itself cannot fail for that reason, as ssl has no way to say so
                self._end_reason = "client_error"
                text = f"expected a client of TLS that offers h2 (ALPN), got {chosen or 'another one'}"
                self._log_end(text, self.app.count_refused(400))
                self._state = LINGERING
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the calls that wait for their run, so that no model runs for a client that has left."""
        self.shared.connections.discard(self)
        self._state = CLOSED
        self._turns.leave(self)
        reason = self._end_reason or "client_left"
        self.app.count_connection_end(reason)
        self._drop_calls(reason)
        if self.shared.on_connection_lost is not None:
            self.shared.on_connection_lost()

    def eof_received(self) -> bool:
        """A client of gRPC that closes its side reads nothing any more."""
        return False

    def data_received(self, data: bytes) -> None:
        if self._state >= LINGERING:
            return
        self._last_input, self._pinged = self.loop.time(), False
        is_continued = bool(self._tail)
        if is_continued:
            data, self._tail = self._tail + data, b""
        if self._turns.has_time:
            self._handle(data, is_continued=is_continued)
        else:
            self._tail = data
            self._fall_behind()

    def decode_more(self) -> None:
        """Decode more of the headers that were read."""
        if self._state >= LINGERING or self.write_paused:
            return
        self._is_behind = False
        # a client's time is what passes after all that it has sent was looked at
        self._last_input = self._head_since = self.loop.time()
        data, self._tail = self._tail, b""
        try:
            self._handle(data, is_continued=True)
        except Exception:
            # as a transport does after an error in `data_received`
            self.transport.abort()
            raise
        if not (self._is_behind or self.write_paused):
            self.transport.resume_reading()

    def _fall_behind(self) -> None:
        """Leave the headers in the tail for a later turn, and read nothing until then."""
        self._is_behind = True
        self.transport.pause_reading()
        self._turns.wait(self)

    def _handle(self, data: bytes, *, is_continued: bool) -> None:
        """Handle what has arrived, of which a part may be known already."""
        try:
            position = self._parse(data)
        except Http2Error as error:
            self._fail(error)
            return
        except Http1Error:
            self._refuse(HTTP1_ANSWER, "client_error", "expected HTTP/2, got HTTP/1.1")
            return
        work = self._header_blocks.work
        if work:
            self._turns.spend(work)
        if position < len(data):
            self._tail = data[position:]
            if work >= MAX_WORK_AT_ONCE:
                self._fall_behind()
            elif self._open_block is None and (position or not is_continued):
                self._head_since = self._last_input
        if self._windows_grew:
            self._windows_grew = False
            self._send_blocked()
        if self._startable and not self._starts_later:
            self._start_calls()
        self._flush()

    def pause_writing(self) -> None:
        self.write_paused = True
        # answers to pings and the like would fill the memory
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        # nothing was read in the meantime
        self._last_input = self._head_since = self.loop.time()
        if self._is_behind:
            self._turns.wait(self)
        else:
            self.transport.resume_reading()
        self._send_blocked()

    # ---- calls

    def _start_calls(self) -> None:
        """Start the calls that can start, some in each turn of the event loop."""
        if self.shared.draining:
            self.begin_drain()
        for _ in range(min(MAX_CALLS_PER_TURN, len(self._startable))):
            call = self._startable.popleft()
            if call.stream_id not in self._calls:
                # it was reset
                continue
            if call.received and call.complete_body is None:
                self._credit(call.take_message())
            self.shared.running.add(call)
            driver = call.driver = Driver(self.app.handle(call), call.ended)
            driver.step()
        self._starts_later = bool(self._startable)
        if self._starts_later:
            self.loop.call_soon(self._start_later)

    def _start_later(self) -> None:
        self._start_calls()
        self._flush()

    def call_ended(self, call: Call, error: BaseException | None) -> None:
        self.shared.running.discard(call)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("request %s failed", call.id, exc_info=error)
        if self._calls.pop(call.stream_id, None) is None:
            return
        if call.response_complete:
            self.app.count_stream_end("answered" if call.status < 400 else "failed")
        else:
            is_cut_off = isinstance(error, asyncio.CancelledError)
            self.app.count_stream_end("stopped" if is_cut_off else "bug")
        if self.blocked:
            # a task of the call may be sending until it notices its end
            self.blocked.pop(call, None)
        self._credit(call.drop_input())
        self._since = self.loop.time()
        if self.transport.is_closing():
            return
        if not call.received:
            self._remember_end(call.stream_id)
        if not call.response_complete:
            self._output.append(reset_frame(call.stream_id, ErrorCode.INTERNAL_ERROR))
        elif not call.received:
            # the answer is complete: the client need not send the rest
            self._output.append(reset_frame(call.stream_id, ErrorCode.NO_ERROR))
        if self._output:
            self._flush()

    def _drop_calls(self, reason: End) -> None:
        """Drop all calls, because the connection ends."""
        self._startable.clear()
        self.blocked.clear()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self.app.count_stream_end(reason)
            call.abandon()

    def cut_off(self) -> None:
        """End the connection at once, because the server ends."""
        self._end_reason = self._end_reason or "stopped"
        self.transport.abort()

    # ---- called by the server

    @property
    def has_pending_output(self) -> bool:
        """Whether the client would miss an answer if the connection ended now."""
        return bool(self._calls) or self._is_behind or self.transport.get_write_buffer_size() > 0

    def check_timeouts(self, now: float) -> None:
        """End what has exceeded a time limit."""
        limits = self.limits
        self.frame_counts.reset()
        silence = now - self._last_input
        if self._unread_output.seconds(self.transport, now) > limits.idle_seconds:
            self._abort("unread", f"it read nothing for {limits.idle_seconds:g} seconds (--idle-seconds)")
        elif self._state >= LINGERING:
            if now - self._since > limits.linger_seconds:
                self.transport.close()
        elif self.write_paused or self._is_behind:
            # nothing is read, so silence means nothing
            pass
        elif self._has_partial_head and now - self._head_since > limits.header_seconds:
            self._fail(
                Http2Error(
                    ErrorCode.ENHANCE_YOUR_CALM,
                    f"expected all headers within {limits.header_seconds:g} seconds (--header-seconds)",
                ),
                "slow_headers",
            )
        elif not self._calls:
            if now - self._since > limits.idle_seconds:
                self.close_gracefully("idle")
        elif silence > limits.idle_seconds and self._pinged:
            self._abort("silent", "it did not answer a ping: its machine or the network has gone")
        elif silence > limits.idle_seconds / 2 and not self._pinged:
            self._pinged = True
            self.transport.write(frame(PING, 0, 0, PING_BYTES))
        self._reset_blocked(now - limits.idle_seconds)

    @property
    def _has_partial_head(self) -> bool:
        """Whether a part of the preface or of headers has arrived."""
        if self._open_block is not None or self._state is PREFACE:
            return True
        # the type of the frame, if it has arrived
        return bool(self._tail) and self._tail[3:4] in (b"", TYPE_OF_HEADERS)

    def _reset_blocked(self, since: float) -> None:
        """End the calls whose client has not taken anything of the answer since that time."""
        for call in list(self.blocked):
            if call.blocked_since is not None and call.blocked_since < since:
                self._output.append(reset_frame(call.stream_id, ErrorCode.CANCEL))
                self._forget(call, "unread")
        self._flush()

    def begin_drain(self) -> None:
        """Ask the client to open no streams here any more. Those that are on their way are answered."""
        if self._state is OPEN:
            self._state, self._going_away_since = GOING_AWAY, self.loop.time()
            self.transport.write(goaway_frame(MAX_STREAM_ID, ErrorCode.NO_ERROR, "the server is stopping"))

    def close_if_idle(self, since: float) -> None:
        """Close the connection, and end streams of messages, that have been idle since that time.

        A client that has been asked since then to open no more streams gets no answers to further ones.
        """
        for call in list(self._calls.values()):
            if call.idle_since is not None and call.idle_since <= since:
                call.stop()
        if self._state >= LINGERING or self._is_behind:
            return
        if not self._calls and self._since <= since:
            self.close_gracefully("stopped")
        elif self._state is GOING_AWAY and self._going_away_since <= since:
            self._state = REFUSING
            self.transport.write(goaway_frame(self._last_stream_id, ErrorCode.NO_ERROR))

    # ---- the end

    def close_gracefully(self, reason: End) -> None:
        """Send the number of the last stream that was answered, and close when the client has closed."""
        self._end_reason = reason
        self._end(goaway_frame(self._last_stream_id, ErrorCode.NO_ERROR))

    def _fail(self, error: Http2Error, reason: End = "client_error") -> None:
        """End the connection because its client broke the protocol or a limit."""
        # Calls start in the order of their streams. The client may repeat all after the last started one.
        first_unstarted = self._startable[0].stream_id if self._startable else self._last_stream_id + 2
        last_stream_id = max(0, first_unstarted - 2)
        last_bytes = goaway_frame(last_stream_id, error.code, str(error))
        self._refuse(last_bytes, reason, f"{error.code.name}, {error}")

    def _refuse(self, last_bytes: bytes, reason: End, text: str) -> None:
        """End the connection because of its client; the text is logged."""
        self._log_end(text, self.app.count_refused(400))
        self._end_reason = reason
        self._end(last_bytes)

    def _abort(self, reason: End, text: str) -> None:
        """End the connection at once, because its client receives nothing any more."""
        if not self.transport.is_closing():
            if self._state < LINGERING:
                self._log_end(text, None)
                self._end_reason = reason
            self.transport.abort()

    def _log_end(self, text: str, request_id: str | None) -> None:
        log.info(
            "the connection of a gRPC client was ended: %s",
            text,
            extra={
                "client": self.client[0] if self.client else None,
                **({"id": request_id} if request_id else {}),
            },
        )

    def _end(self, last_bytes: bytes) -> None:
        """Send the last bytes, and close after the client had time to read them.

        Closing with unread input would reset the connection.
        """
        if self._state >= LINGERING or self.transport.is_closing():
            return
        self._state, self._since = LINGERING, self.loop.time()
        if self._is_behind:
            self._is_behind, self._tail = False, b""
            self._turns.leave(self)
            if not self.write_paused:
                self.transport.resume_reading()
        self._drop_calls(self._end_reason or "client_left")
        self._flush()
        self.transport.write(last_bytes)
        if self.transport.can_write_eof():
            self.transport.write_eof()


def grpc_protocols(app: GrpcConnectionApplication, shared: SharedState) -> Callable[[], GrpcProtocol]:
    """A function that creates the protocol of each connection."""
    turns = HeaderTurns()
    return lambda: GrpcProtocol(app, shared, turns)
