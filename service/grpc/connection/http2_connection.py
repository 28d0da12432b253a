"""HTTP/2 on one connection: handles the frames of a client, and keeps the windows of both sides."""

from __future__ import annotations

import asyncio
from collections import deque

from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.connection.ends import End, GrpcConnectionApplication
from turnpike.service.grpc.connection.frame_counts import FrameCounts
from turnpike.service.grpc.connection.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
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
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    Http2Error,
    expect_control_frame,
    frame,
    parse_settings,
    reset_frame,
    settings_frame,
    window_update,
    without_padding,
)
from turnpike.service.grpc.connection.header_blocks import (
    NOT_GRPC,
    NOT_GRPC_TEXT,
    GrpcHead,
    HeaderBlocks,
    are_valid_trailers,
)
from turnpike.service.grpc.connection.header_turns import MAX_WORK_AT_ONCE
from turnpike.service.grpc.connection.http2_state import OPEN, PREFACE, REFUSING
from turnpike.service.grpc.connection.preface import preface_bytes

# calls of one client at a time; a client keeps further ones until some have ended
MAX_STREAMS = 1024
# Bytes of request bodies that a client may send before we have read them: on one stream, and on all streams
# of the connection together. This bounds what a client can make us hold.
STREAM_WINDOW = 1 << 18
CONNECTION_WINDOW = 1 << 20
# Streams that a connection remembers because we have ended them before the client, which may still send on
# them; and ranges of numbers that it has passed over. Of older ones, late frames are ignored.
MAX_REMEMBERED = 256


class Http2Connection:
    """The streams of a connection. A subclass receives the data, and starts the calls."""

    transport: asyncio.Transport
    stream_window = STREAM_WINDOW

    def __init__(self, app: GrpcConnectionApplication) -> None:
        self.app = app
        self.limits = app.connection_limits
        self.loop = asyncio.get_running_loop()
        self.client: tuple[str, int] | None = None
        self._state = PREFACE
        # the output of the transport is full, in whatever state
        self.write_paused = False
        # event-loop times: of the last input, and of the first part of a preface or headers that are not
        # complete
        self._last_input = self._head_since = self.loop.time()

        self._header_blocks = HeaderBlocks(self.limits.max_header)
        # a header block whose continuation is expected: its stream, its flags and its bytes
        self._open_block: tuple[int, int, bytearray] | None = None

        self._calls: dict[int, Call] = {}
        # calls to start at the end of the data at hand, or in the next turns of the event loop
        self._startable: deque[Call] = deque()
        # calls that wait until the client's windows have room for the rest of a message, in turn
        self.blocked: dict[Call, None] = {}
        self._last_stream_id = 0
        # what is remembered of streams that are gone, oldest first, and up to which stream that was forgotten
        self._ended_here: dict[int, None] = {}
        self._passed_over: deque[range] = deque()
        self._forgotten_stream_id = 0

        # windows: what we may send, and what the client may; and what it has not been allowed to send again
        self.send_window = self.initial_send_window = DEFAULT_WINDOW
        self._receive_window = CONNECTION_WINDOW
        self._uncredited_bytes = 0
        # windows grew while the data at hand was handled
        self._windows_grew = False
        # frames to send at the end of the data at hand
        self._output: list[bytes] = []
        self.frame_counts = FrameCounts()

    # ---- frames

    def _parse(self, data: bytes) -> int:
        """Handle whole frames of the data, until much was decoded; returns where the rest begins."""
        position, end = 0, len(data)
        blocks = self._header_blocks
        blocks.work = 0
        if self._state is PREFACE:
            position = preface_bytes(data)
            if not position:
                return 0
            self._state = OPEN
            limits = {
                MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                MAX_HEADER_LIST_SIZE: self.limits.max_header,
            }
            # at once: it must come before all other frames
            self.transport.write(
                settings_frame(limits) + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
            )
        while end - position >= FRAME_HEADER_BYTES and blocks.work < MAX_WORK_AT_ONCE:
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
                self._open_block = (stream_id, flags, bytearray(payload))
                self._head_since = self._last_input
        elif kind == CONTINUATION:
            self._on_continuation(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        else:
            self.frame_counts.count_control_frame()
            self._on_control_frame(kind, flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "expected DATA within the connection's window")
        is_last = bool(flags & END_STREAM)
        if flags & PADDED:
            payload = without_padding(PADDED, payload)
        call = self._calls.get(stream_id)
        if call is None:
            self._expect_known(stream_id)
            self._expect_open(stream_id, is_last=is_last)
            self._credit(size)
            if not size:
                self.frame_counts.count_stream_frame()
            return
        call.receive_window -= size
        if call.receive_window < 0 or call.received:
            self._credit(size)
            self._reset(call, ErrorCode.STREAM_CLOSED if call.received else ErrorCode.FLOW_CONTROL_ERROR)
            return
        if flags & PADDED:
            # padding is never read
            self._credit_call(call, size - len(payload))
        if not (payload or is_last):
            self.frame_counts.count_control_frame()
        if call.announced_left is not None:
            call.announced_left -= len(payload)
            if call.announced_left < 0 or (is_last and call.announced_left):
                call.received = is_last
                self._credit(len(payload))
                self._reset(call, ErrorCode.PROTOCOL_ERROR)
                return
        call.feed(payload, is_last=is_last)
        if call.complete_body is not None or call.response_complete:
            self._credit(len(payload))

    def _on_header_block(self, flags: int, stream_id: int, block: bytes) -> None:
        is_last = bool(flags & END_STREAM)
        if not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"expected an odd stream number, got {stream_id}")
        if stream_id <= self._last_stream_id:
            self._on_trailers(stream_id, block, is_last=is_last)
            return
        head = self._header_blocks.head(block)
        if self._state is REFUSING:
            # after the final GOAWAY: the client knows that these are not answered
            self.app.count_stream_end("refused")
            return
        first, self._last_stream_id = self._last_stream_id + (2 if self._last_stream_id else 1), stream_id
        if first < stream_id:
            self._passed_over.append(range(first, stream_id, 2))
            if len(self._passed_over) > MAX_REMEMBERED:
                self._forget_streams(self._passed_over.popleft()[-1])
        self.frame_counts.requests += 1
        if len(self._calls) >= MAX_STREAMS:
            self.app.count_stream_end("refused")
            self.frame_counts.count_control_frame()
            self._output.append(reset_frame(stream_id, ErrorCode.REFUSED_STREAM))
            if not is_last:
                self._remember_end(stream_id)
        elif not head.is_grpc or (is_last and head.announced_bytes):
            self._refuse_head(head, stream_id, is_last=is_last)
        else:
            call = self._calls[stream_id] = Call(self, head, stream_id)
            if is_last:
                call.received = True
            elif (announced := head.announced_bytes) is not None:
                call.announced_left = announced
            self._startable.append(call)

    def _on_trailers(self, stream_id: int, block: bytes, *, is_last: bool) -> None:
        """Headers of a stream that exists, or has ended. They may change the table of headers."""
        self.frame_counts.count_control_frame()
        is_valid = are_valid_trailers(self._header_blocks.decode(block))
        call = self._calls.get(stream_id)
        if call is None:
            self._expect_open(stream_id, is_last=is_last)
            return
        if call.received:
            self._reset(call, ErrorCode.STREAM_CLOSED)
        elif not (is_last and is_valid) or call.announced_left:
            call.received = is_last
            self._reset(call, ErrorCode.PROTOCOL_ERROR)
        else:
            call.end_received()

    def _refuse_head(self, head: GrpcHead, stream_id: int, *, is_last: bool) -> None:
        """End a stream whose headers are not those of a call."""
        # a call that ends with its headers has no bytes to announce
        is_malformed = head.is_malformed or head.is_grpc
        self.app.count_refused(400 if is_malformed else 415)
        self.app.count_stream_end("invalid")
        if not is_last:
            self._remember_end(stream_id)
        if is_malformed:
            self._output.append(reset_frame(stream_id, ErrorCode.PROTOCOL_ERROR))
            return
        # in one frame, if the client allows it
        text = NOT_GRPC_TEXT if min(self.initial_send_window, self.send_window) >= len(NOT_GRPC_TEXT) else b""
        self.send_window -= len(text)
        self._output.append(frame(HEADERS, END_HEADERS, stream_id, NOT_GRPC))
        self._output.append(frame(DATA, END_STREAM, stream_id, text))
        if not is_last:
            # the client need not send the rest
            self._output.append(reset_frame(stream_id, ErrorCode.NO_ERROR))

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._open_block is None or self._open_block[0] != stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected HEADERS before CONTINUATION")
        _, first_flags, block = self._open_block
        self.frame_counts.count_control_frame()
        block += payload
        if len(block) > self.limits.max_header:
            raise self._header_blocks.too_large()
        if flags & END_HEADERS:
            self._open_block = None
            self._on_header_block(first_flags, stream_id, bytes(block))

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        expect_control_frame(WINDOW_UPDATE, stream_id, len(payload))
        self.frame_counts.count_stream_frame()
        size = int.from_bytes(payload) & MAX_WINDOW
        if not stream_id:
            self.send_window += size
            if not size or self.send_window > MAX_WINDOW:
                raise Http2Error(
                    ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR,
                    "WINDOW_UPDATE: expected a window of 1 to 2^31-1",
                )
            self._windows_grew = True
            return
        call = self._calls.get(stream_id)
        if call is None:
            self._expect_known(stream_id)
            return
        call.send_window += size
        if not size or call.send_window > MAX_WINDOW:
            self._reset(call, ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR)
        elif call in self.blocked:
            self._send_more(call)

    def _on_control_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        expect_control_frame(kind, stream_id, len(payload))
        if kind == PING:
            if not flags & ACK:
                self._output.append(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            if not flags & ACK:
                self._apply_settings(parse_settings(payload))
                # at once: until then, the client takes what exceeds its old windows for an error
                self.transport.write(frame(SETTINGS, ACK, 0))
            elif payload:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS: expected no settings with ACK")
        elif kind == RST_STREAM:
            call = self._calls.get(stream_id)
            if call is None:
                self._expect_known(stream_id)
                self._ended_here.pop(stream_id, None)
            else:
                self._forget(call, "reset")
        elif kind == PUSH_PROMISE:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected no PUSH_PROMISE of a client")

    def _expect_known(self, stream_id: int) -> None:
        """Raise Http2Error for a stream that the client has not opened."""
        if not stream_id % 2 or (stream_id > self._last_stream_id and self._state is not REFUSING):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected a stream that was opened")

    def _expect_open(self, stream_id: int, *, is_last: bool) -> None:
        """Raise Http2Error for a stream without a call on which the client may not send any more.

        It may if we have ended the stream, until it has noticed that.
        """
        if stream_id in self._ended_here:
            if is_last:
                del self._ended_here[stream_id]
        elif not self._forgotten_stream_id < stream_id <= self._last_stream_id:
            # forgotten, or ignored because we are refusing streams
            pass
        elif any(stream_id in numbers for numbers in self._passed_over):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"expected a higher stream number than {stream_id}")
        else:
            raise Http2Error(
                ErrorCode.STREAM_CLOSED, f"expected nothing on stream {stream_id}, which the client has ended"
            )

    def _remember_end(self, stream_id: int) -> None:
        """Note that we have ended a stream on which the client may still be sending."""
        self._ended_here[stream_id] = None
        if len(self._ended_here) > MAX_REMEMBERED:
            oldest = next(iter(self._ended_here))
            del self._ended_here[oldest]
            self._forget_streams(oldest)

    def _forget_streams(self, last: int) -> None:
        self._forgotten_stream_id = max(self._forgotten_stream_id, last)

    def _apply_settings(self, settings: dict[int, int]) -> None:
        """Apply the client's settings; only the window of streams concerns us.

        Our frames are never longer than any client accepts, and our headers need no table.
        """
        window = settings.get(INITIAL_WINDOW_SIZE)
        if window is None:
            return
        change, self.initial_send_window = window - self.initial_send_window, window
        for call in self._calls.values():
            call.send_window += change
            if call.send_window > MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS: expected windows of up to 2^31-1")
        self._windows_grew = True

    # ---- called by calls

    def call_ended(self, call: Call, error: BaseException | None) -> None:
        """Let go of a call, and end its stream if that is not done."""
        raise NotImplementedError

    def consumed(self, call: Call, size: int) -> None:
        """Let the client send as much again as a call has read."""
        self._credit_call(call, size)
        self._flush()

    # ---- windows, and streams that end

    def _credit_call(self, call: Call, size: int) -> None:
        """Count bytes of a stream that were read, as `_credit` does for those of the connection."""
        self._credit(size)
        call.uncredited_bytes += size
        if call.uncredited_bytes > STREAM_WINDOW // 2 and not call.received:
            call.receive_window += call.uncredited_bytes
            self._output.append(window_update(call.stream_id, call.uncredited_bytes))
            call.uncredited_bytes = 0

    def _credit(self, size: int) -> None:
        """Count bytes that were read, and let the client send as many again before its window is used up."""
        self._uncredited_bytes += size
        if self._uncredited_bytes > CONNECTION_WINDOW // 2:
            self._receive_window += self._uncredited_bytes
            self._output.append(window_update(0, self._uncredited_bytes))
            self._uncredited_bytes = 0

    def _reset(self, call: Call, code: ErrorCode) -> None:
        """End a stream because of its client. This counts as a RST_STREAM of the client."""
        self.frame_counts.count_control_frame()
        self._output.append(reset_frame(call.stream_id, code))
        self._forget(call, "invalid")

    def _forget(self, call: Call, reason: End) -> None:
        """Drop a call whose stream has ended."""
        if reason != "reset" and not call.received:
            self._remember_end(call.stream_id)
        if self._calls.pop(call.stream_id, None) is not None:
            self.app.count_stream_end(reason)
        self.blocked.pop(call, None)
        self._credit(call.drop_input())
        call.abandon()

    def _send_blocked(self) -> None:
        """Send as much of the answers that wait as the client's windows have room for."""
        for call in list(self.blocked):
            if self.send_window <= 0 or self.write_paused:
                break
            self._send_more(call)

    def _send_more(self, call: Call) -> None:
        """Send more of the answer of a blocked call, and let the others go first the next time."""
        del self.blocked[call]
        if not call.send_more():
            self.blocked[call] = None

    def _flush(self) -> None:
        if self._output:
            data = b"".join(self._output)
            self._output.clear()
            if not self.transport.is_closing():
                self.transport.write(data)
