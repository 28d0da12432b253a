"""Frames of HTTP/2 (RFC 9113): their types, flags and error codes, and how they are written."""

from __future__ import annotations

import struct
from enum import IntEnum

# length (8 and 16 bits), type, flags, stream
FRAME_HEADER = struct.Struct(">BHBBL")
FRAME_HEADER_BYTES = 9
# bytes of a frame's payload that every peer accepts; we neither accept nor send longer ones
MAX_FRAME_BYTES = 16_384
# window of a stream and of the connection until a peer changes it
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1

# types of frames
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
# flags
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20
# keys of settings
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 6

# the largest values of settings that have one
MAX_SETTINGS = {ENABLE_PUSH: 1, INITIAL_WINDOW_SIZE: MAX_WINDOW, MAX_FRAME_SIZE: 2**24 - 1}

SETTING = struct.Struct(">HL")
NUMBER = struct.Struct(">L")
# bytes of the payload of types that have a fixed size
PAYLOAD_BYTES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
# bytes of the last stream and of the error; a text may follow
MIN_GOAWAY_BYTES = 8
# types of frames about the whole connection, and types about one stream
CONNECTION_TYPES = frozenset({SETTINGS, PING, GOAWAY})
STREAM_TYPES = frozenset({PRIORITY, RST_STREAM})


class ErrorCode(IntEnum):
    """Why a connection or a stream ends; only the codes that this service uses."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2Error(Exception):
    """A peer broke the protocol or a limit: the connection ends with this code and text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return FRAME_HEADER.pack(length >> 16, length & 0xFFFF, kind, flags, stream_id) + payload


def expect_control_frame(kind: int, stream_id: int, size: int) -> None:
    """Raise Http2Error unless a frame that carries no request has a size and a stream as it must."""
    if size != PAYLOAD_BYTES.get(kind, size):
        raise Http2Error(
            ErrorCode.FRAME_SIZE_ERROR,
            f"expected {PAYLOAD_BYTES[kind]} bytes in a frame of type {kind}, got {size}",
        )
    if kind == GOAWAY and size < MIN_GOAWAY_BYTES:
        raise Http2Error(
            ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY: expected at least {MIN_GOAWAY_BYTES} bytes, got {size}"
        )
    if (kind in CONNECTION_TYPES and stream_id) or (kind in STREAM_TYPES and not stream_id):
        expected = "stream 0" if stream_id else "a stream other than 0"
        raise Http2Error(
            ErrorCode.PROTOCOL_ERROR, f"expected {expected} in a frame of type {kind}, got {stream_id}"
        )


def settings_frame(values: dict[int, int]) -> bytes:
    """A frame that sets values."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*item) for item in values.items()))


def parse_settings(payload: bytes) -> dict[int, int]:
    """The values of a settings frame; of a key that occurs more than once, the last value."""
    if len(payload) % SETTING.size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS: expected whole settings")
    for key, value in SETTING.iter_unpack(payload):
        if value > MAX_SETTINGS.get(key, value) or (key == MAX_FRAME_SIZE and value < MAX_FRAME_BYTES):
            is_window = key == INITIAL_WINDOW_SIZE
            raise Http2Error(
                ErrorCode.FLOW_CONTROL_ERROR if is_window else ErrorCode.PROTOCOL_ERROR,
                f"SETTINGS: expected a valid value of setting {key}, got {value}",
            )
    return dict(SETTING.iter_unpack(payload))


def window_update(stream_id: int, size: int) -> bytes:
    """A frame that lets the peer send `size` more bytes."""
    return frame(WINDOW_UPDATE, 0, stream_id, NUMBER.pack(size))


def reset_frame(stream_id: int, code: ErrorCode) -> bytes:
    """A frame that ends a stream at once."""
    return frame(RST_STREAM, 0, stream_id, NUMBER.pack(code))


def goaway_frame(last_stream_id: int, code: ErrorCode, text: str = "") -> bytes:
    """A frame that says that streams after `last_stream_id` are not answered."""
    return frame(GOAWAY, 0, 0, NUMBER.pack(last_stream_id) + NUMBER.pack(code) + text.encode())


def without_padding(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding, and without a priority."""
    start, stop = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "expected the length of the padding, got none")
        start, stop = 1, stop - payload[0]
    if flags & HAS_PRIORITY:
        start += 5
    if start > stop:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected padding within the frame, got more")
    return payload[start:stop]
