"""HTTP/2 on one connection of a gRPC client: streams, windows, limits, and a graceful end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from uvicorn.server import ServerState

from service.grpc.connection.call import Call
from service.grpc.connection.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_BYTES,
    MAX_HEADER_LIST_SIZE,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    Http2Error,
    frame,
    goaway_frame,
    parse_settings,
    reset_frame,
    settings_frame,
    window_update,
    without_padding,
)
from service.grpc.connection.header_blocks import NOT_GRPC, HeaderBlocks
from service.http.connection.shared_state import HttpApplication, SharedState
from service.http.driver import Driver

log = logging.getLogger(__name__)

# how a client of TLS names HTTP/2
ALPN = ("h2",)
# calls of one client at a time; a client keeps further ones until some have ended
MAX_STREAMS = 1024
# Bytes of request bodies that a client may send before we have read them: on one stream, and on all streams
# of the connection together. This bounds what a client can make us hold.
STREAM_WINDOW = 1 << 18
CONNECTION_WINDOW = 1 << 20
# frames in a second that carry no request (PING, RST_STREAM and the like); a client that sends more is
# closed, as each makes us work and some make us answer
MAX_CONTROL_FRAMES = 1000
# calls of one client to start before other connections get a turn of the event loop
MAX_CALLS_PER_TURN = 64
# output that a TLS transport holds before it pauses: as much as others do
MAX_TLS_BUFFER_BYTES = 1 << 16
# contents of our own ping
PING_BYTES = b"turnpike"
HTTP1_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ")
# to a client that speaks HTTP/1.1
HTTP1_TEXT = b'{"error":"this port speaks gRPC (HTTP/2); HTTP is on the port of --port"}'
HTTP1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d"
    b"\r\n\r\n%b" % (len(HTTP1_TEXT), HTTP1_TEXT)
)


class GrpcProtocol(asyncio.Protocol):
    """One connection. Its limits need no timers: the server calls `check_timeouts` about once a second."""

    transport: asyncio.Transport
    stream_window = STREAM_WINDOW

    def __init__(self, app: HttpApplication, server_state: ServerState) -> None:
        self.app = app
        self.limits = app.connection_limits
        self.server_state = server_state
        self.shared = SharedState.of(server_state)
        self.loop = asyncio.get_running_loop()
        self.client: tuple[str, int] | None = None
        self.write_paused = False

        # a part of a frame, or of the preface
        self._tail = b""
        self._has_preface = False
        self._header_blocks = HeaderBlocks(self.limits.max_header)
        # a header block whose continuation is expected: its stream, its flags and its bytes
        self._open_block: tuple[int, int, bytearray] | None = None

        self._calls: dict[int, Call] = {}
        # calls that can start, and those whose body may be complete at the end of the data at hand
        self._startable: deque[Call] = deque()
        self._opened: list[Call] = []
        self._last_stream_id = 0

        # windows: what we may send, and what the client may
        self.send_window = self.initial_send_window = DEFAULT_WINDOW
        self._receive_window = CONNECTION_WINDOW
        self._consumed = 0
        # frames to send at the end of the data at hand
        self._output: list[bytes] = []
        self._control_frames = 0

        # event-loop times
        self._since = self._last_input = self.loop.time()
        self._paused_since = 0.0
        self._pinged = False
        # a GOAWAY was sent: clients open no streams; and the final one: none are accepted any more
        self._going_away = self._closing = False

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        if transport.get_extra_info("sslcontext"):
            # by default, a TLS transport holds half a megabyte before it pauses
            self.transport.set_write_buffer_limits(high=MAX_TLS_BUFFER_BYTES)
        self.server_state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the calls that wait for their run, so that no model runs for a client that has left."""
        self.server_state.connections.discard(self)
        self._closing = True
        self._startable.clear()
        for call in list(self._calls.values()):
            call.abandon()
        self._calls.clear()
        if self.shared.on_connection_lost is not None:
            self.shared.on_connection_lost()

    def eof_received(self) -> bool:
        """A client of gRPC that closes its side reads nothing any more."""
        return False

    def data_received(self, data: bytes) -> None:
        self._last_input, self._pinged = self.loop.time(), False
        if self._tail:
            data, self._tail = self._tail + data, b""
        try:
            position = self._parse(data, self._take_preface(data))
        except Http2Error as error:
            self._fail(error)
            return
        self._tail = data[position:]
        for call in self._opened:
            # the rest of its body comes later
            if not call.received:
                self._startable.append(call)
        self._opened.clear()
        if self._startable:
            self._start_calls()
        self._flush()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._paused_since = self.loop.time()
        # answers to pings and the like would fill the memory
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.transport.resume_reading()
        self._wake_blocked()

    # ---- frames

    def _take_preface(self, data: bytes) -> int:
        """Check the client's preface, if it has not come yet; returns where the frames begin."""
        if self._has_preface:
            return 0
        if not PREFACE.startswith(data[: len(PREFACE)]):
            if data.startswith(HTTP1_METHODS):
                self.transport.write(HTTP1_ANSWER)
                self.transport.close()
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected the preface of HTTP/2")
        if len(data) < len(PREFACE):
            return 0
        self._has_preface = True
        limits = {
            MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            MAX_HEADER_LIST_SIZE: self.limits.max_header,
        }
        self._output += [settings_frame(limits), window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)]
        return len(PREFACE)

    def _parse(self, data: bytes, position: int) -> int:
        """Handle the whole frames in the data; returns where the rest begins."""
        end = len(data)
        if not self._has_preface:
            return 0
        while end - position >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(data, position)
            if high or low > MAX_FRAME_BYTES:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR, f"expected frames of at most {MAX_FRAME_BYTES} bytes"
                )
            start = position + FRAME_HEADER_BYTES
            if end - start < low:
                break
            position = start + low
            self._handle_frame(kind, flags, stream_id & MAX_STREAM_ID, data[start:position])
        return position

    def _handle_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._open_block is not None and kind != CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected CONTINUATION, got another frame")
        if kind == DATA:
            self._on_data(flags, stream_id, payload)
        elif kind == HEADERS:
            if flags & (PADDED | HAS_PRIORITY):
                payload = without_padding(flags, payload)
            if flags & END_HEADERS:
                self._on_header_block(flags, stream_id, payload)
            else:
                self._since = self.loop.time()
                self._open_block = (stream_id, flags, bytearray(payload))
        elif kind == CONTINUATION:
            self._on_continuation(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        else:
            self._count_control_frame()
            self._on_control_frame(kind, flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "expected DATA within the connection's window")
        is_last = bool(flags & END_STREAM)
        if not (size or is_last):
            self._count_control_frame()
        call = self._calls.get(stream_id)
        if call is None:
            if not self._closing and (stream_id > self._last_stream_id or not stream_id):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected DATA on an open stream")
            # of a stream that we have ended
            self._credit(size)
            return
        call.receive_window -= size
        if call.receive_window < 0 or call.received:
            self._credit(size)
            self._reset(call, ErrorCode.STREAM_CLOSED if call.received else ErrorCode.FLOW_CONTROL_ERROR)
            return
        if flags & PADDED:
            payload = without_padding(flags & PADDED, payload)
            # padding is never read
            self._credit(size - len(payload))
            call.receive_window += size - len(payload)
        call.feed(payload, is_last=is_last)
        if call.complete_body is not None or call.response_complete:
            self._credit(len(payload))
        if is_last and call.driver is None and not call.status:
            self._startable.append(call)

    def _on_header_block(self, flags: int, stream_id: int, block: bytes) -> None:
        is_last = bool(flags & END_STREAM)
        call = self._calls.get(stream_id)
        if call is not None or stream_id <= self._last_stream_id:
            # trailers, or of a stream that we have ended; they may change the table of headers
            self._header_blocks.decode(block)
            if call is not None and is_last:
                call.end_received()
            return
        if not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected an odd number of a stream")
        head = self._header_blocks.head(block)
        if self._closing:
            # after the final GOAWAY: the client knows that these are not answered
            return
        self._last_stream_id = stream_id
        if len(self._calls) >= MAX_STREAMS:
            self._output.append(reset_frame(stream_id, ErrorCode.REFUSED_STREAM))
            return
        if not head.is_grpc:
            self.app.count_refused(415)
            self._output.append(frame(HEADERS, END_HEADERS | END_STREAM, stream_id, NOT_GRPC))
            return
        call = self._calls[stream_id] = Call(self, head, stream_id)
        if is_last:
            call.received = True
            self._startable.append(call)
        else:
            self._opened.append(call)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._open_block is None or self._open_block[0] != stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected HEADERS before CONTINUATION")
        _, first_flags, block = self._open_block
        self._count_control_frame()
        block += payload
        if len(block) > self.limits.max_header:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers: expected at most {self.limits.max_header} bytes (--max-header), got more",
            )
        if flags & END_HEADERS:
            self._open_block = None
            self._on_header_block(first_flags, stream_id, bytes(block))

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE: expected 4 bytes")
        size = int.from_bytes(payload) & MAX_WINDOW
        if not stream_id:
            self.send_window += size
            if not size or self.send_window > MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "expected a window of up to 2^31-1")
            self._wake_blocked()
            return
        call = self._calls.get(stream_id)
        if call is not None:
            call.send_window += size
            if not size or call.send_window > MAX_WINDOW:
                self._reset(call, ErrorCode.FLOW_CONTROL_ERROR)
            else:
                call.window_grew()

    def _on_control_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == PING:
            if len(payload) != 8:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING: expected 8 bytes")
            if not flags & ACK:
                self._output.append(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            if not flags & ACK:
                self._apply_settings(parse_settings(payload))
                self._output.append(frame(SETTINGS, ACK, 0))
        elif kind == RST_STREAM:
            call = self._calls.get(stream_id)
            if call is not None:
                self._forget(call)
        elif kind == PUSH_PROMISE:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected no PUSH_PROMISE of a client")
        elif kind not in (PRIORITY, GOAWAY):
            log.debug("a frame of unknown type %d was ignored", kind)

    def _apply_settings(self, settings: list[tuple[int, int]]) -> None:
        """Apply the client's settings; only the window of new streams concerns us."""
        for key, value in settings:
            if key != INITIAL_WINDOW_SIZE:
                # our frames are never longer than any client accepts, and our headers need no table
                continue
            if value > MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "expected a window of up to 2^31-1")
            change = value - self.initial_send_window
            self.initial_send_window = value
            for call in self._calls.values():
                call.send_window += change
                call.window_grew()

    def _count_control_frame(self) -> None:
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"expected at most {MAX_CONTROL_FRAMES} frames in a second that carry no request",
            )

    # ---- calls

    def _start_calls(self) -> None:
        """Start the calls that can start, some in each turn of the event loop."""
        if self.shared.draining and not self._going_away:
            self.begin_drain()
        for _ in range(min(MAX_CALLS_PER_TURN, len(self._startable))):
            call = self._startable.popleft()
            if call.client_gone or call.driver is not None:
                continue
            if call.received and call.complete_body is None:
                self._credit(call.take_message())
            self.shared.running.add(call)
            driver = call.driver = Driver(self.app.handle(call), call.ended)
            driver.step()
        if self._startable:
            self.loop.call_soon(self._start_calls)

    def call_ended(self, call: Call, error: BaseException | None) -> None:
        """Let go of a call, and end its stream if that is not done. Called by the call."""
        self.shared.running.discard(call)
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("request %s failed", call.id, exc_info=error)
        if self._calls.pop(call.stream_id, None) is None:
            return
        self._credit(call.unread_bytes)
        self._since = self.loop.time()
        if self.transport.is_closing():
            return
        if not call.response_complete:
            self._output.append(reset_frame(call.stream_id, ErrorCode.INTERNAL_ERROR))
        elif not call.received:
            # the answer is complete: the client need not send the rest
            self._output.append(reset_frame(call.stream_id, ErrorCode.NO_ERROR))
        if self._output:
            self._flush()

    def consumed(self, call: Call, size: int) -> None:
        """Let the client send as much again as a call has read."""
        self._credit(size)
        if not call.received:
            call.receive_window += size
            self._output.append(window_update(call.stream_id, size))
        self._flush()

    def _credit(self, size: int) -> None:
        """Count bytes that were read, and let the client send as many again before its window is used up."""
        self._consumed += size
        if self._consumed > CONNECTION_WINDOW // 2:
            self._receive_window += self._consumed
            self._output.append(window_update(0, self._consumed))
            self._consumed = 0

    def _reset(self, call: Call, code: ErrorCode) -> None:
        """End a stream because of its client."""
        self._output.append(reset_frame(call.stream_id, code))
        self._forget(call)

    def _forget(self, call: Call) -> None:
        """Drop a call whose stream has ended."""
        self._calls.pop(call.stream_id, None)
        self._credit(call.unread_bytes)
        call.abandon()

    def _wake_blocked(self) -> None:
        for call in list(self._calls.values()):
            call.window_grew()

    def _flush(self) -> None:
        if self._output:
            data = b"".join(self._output)
            self._output.clear()
            if not self.transport.is_closing():
                self.transport.write(data)

    # ---- called by the server

    @property
    def has_pending_output(self) -> bool:
        """Whether the client would miss an answer if the connection ended now."""
        return bool(self._calls) or self.transport.get_write_buffer_size() > 0

    def check_timeouts(self, now: float) -> None:
        """End what has exceeded a time limit."""
        limits = self.limits
        self._control_frames = 0
        silence = now - self._last_input
        if self.write_paused and now - self._paused_since > limits.idle_seconds:
            self.transport.abort()
        elif self._closing:
            if now - self._since > limits.linger_seconds:
                self.transport.close()
        elif not self._has_preface or self._open_block is not None:
            if now - self._since > limits.header_seconds:
                self._fail(
                    Http2Error(
                        ErrorCode.SETTINGS_TIMEOUT,
                        f"expected all headers within {limits.header_seconds:g} seconds (--header-seconds)",
                    )
                )
        elif not self._calls:
            if now - self._since > limits.idle_seconds:
                self.close_gracefully()
        elif silence > limits.idle_seconds and self._pinged:
            # the client's machine has gone
            self.transport.abort()
        elif silence > limits.idle_seconds / 2 and not self._pinged:
            self._pinged = True
            self.transport.write(frame(PING, 0, 0, PING_BYTES))
        self._reset_blocked(now - limits.idle_seconds)

    def _reset_blocked(self, since: float) -> None:
        """End the calls whose client has not taken anything of the answer since that time."""
        for call in list(self._calls.values()):
            if call.blocked_since is not None and call.blocked_since < since:
                self._reset(call, ErrorCode.CANCEL)
        self._flush()

    def begin_drain(self) -> None:
        """Ask the client to open no streams here any more. Those that are on their way are answered."""
        if self._has_preface and not self._going_away:
            self._going_away = True
            self.transport.write(goaway_frame(MAX_STREAM_ID, ErrorCode.NO_ERROR, "the server is stopping"))

    def close_if_idle(self, since: float) -> None:
        """Close the connection, and end streams of messages, that have been idle since that time."""
        for call in list(self._calls.values()):
            if call.idle_since is not None and call.idle_since <= since:
                call.stop()
        if not self._closing and not self._calls and self._since <= since:
            self.close_gracefully()

    # ---- the end

    def close_gracefully(self) -> None:
        """Send the number of the last stream that was answered, and close when the client has closed."""
        if self._closing or self.transport.is_closing():
            return
        self._closing, self._since = True, self.loop.time()
        self._startable.clear()
        self._flush()
        self.transport.write(goaway_frame(self._last_stream_id, ErrorCode.NO_ERROR))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _fail(self, error: Http2Error) -> None:
        """End the connection because of its client."""
        if self.transport.is_closing():
            return
        request_id = self.app.count_refused(400)
        log.info(
            "the connection of a gRPC client was ended: %s, %s",
            error.code.name,
            error,
            extra={"client": self.client[0] if self.client else None, "id": request_id},
        )
        self._flush()
        self.transport.write(goaway_frame(self._last_stream_id, error.code, str(error)))
        self.transport.close()


def grpc_protocols(app: HttpApplication, state: ServerState) -> Callable[[], GrpcProtocol]:
    """A function that creates the protocol of each connection."""
    return lambda: GrpcProtocol(app, state)
