"""A small client of HTTP/2 for tests: writes valid and invalid frames, and reads those of a server.

It has its own code for frames, so that an error in that of the service does not go unnoticed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 1
END_HEADERS, PADDED, HAS_PRIORITY = 4, 8, 32
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5
FIRST_WINDOW = 65_535

ERRORS = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT"),
    *("STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR"),
    *("CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """Any frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream_id.to_bytes(4) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in pairs))


def window_update(stream_id: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, size.to_bytes(4))


def reset(stream_id: int, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4))


def data(stream_id: int, payload: bytes = b"", *, end: bool = False, padding: int | None = None) -> bytes:
    """A DATA frame, padded if `padding` is a number."""
    flags = END_STREAM if end else 0
    if padding is not None:
        flags, payload = flags | PADDED, bytes((padding,)) + payload + bytes(padding)
    return frame(DATA, flags, stream_id, payload)


def message(payload: bytes, *, flag: int = 0) -> bytes:
    """A message of gRPC with its prefix."""
    return bytes((flag,)) + len(payload).to_bytes(4) + payload


@dataclass
class Answer:
    """What the server sent on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    # the error of RST_STREAM
    reset: str | None = None

    @property
    def messages(self) -> list[bytes]:
        """The whole messages in the body."""
        found, position = [], 0
        while position < len(self.body):
            size = int.from_bytes(self.body[position + 1 : position + 5])
            found.append(bytes(self.body[position + 5 : position + 5 + size]))
            position += 5 + size
        return found

    @property
    def status(self) -> int | None:
        """The status of gRPC, None if it has not come."""
        # an answer of headers only has it in them
        status = (self.trailers or self.headers).get("grpc-status")
        return None if status is None else int(status)

    @property
    def text(self) -> str | None:
        """The message of an error."""
        return (self.trailers or self.headers).get("grpc-message")

    @property
    def done(self) -> bool:
        return self.ended or self.reset is not None


class H2Client:
    """The state of a client: what it writes, and what it has read."""

    def __init__(self) -> None:
        self.encoder, self._decoder = Encoder(), Decoder()
        self._unread = b""
        self.answers: dict[int, Answer] = defaultdict(Answer)
        # frames of the server, as pairs of type and stream
        self.frames: list[tuple[int, int]] = []
        self.settings: dict[int, int] = {}
        self.pings: list[tuple[int, bytes]] = []
        # last stream, error and text of each GOAWAY
        self.goaways: list[tuple[int, str, str]] = []
        # what we may send on the connection (0), and on each stream apart from its first window
        self.windows: dict[int, int] = defaultdict(int, {0: FIRST_WINDOW})
        # what the server may send on the connection, and on each stream apart from its first window
        self.server_window = FIRST_WINDOW
        self._server_windows: dict[int, int] = defaultdict(int)
        # first windows that the server may use: those of SETTINGS that it has acknowledged, and of others
        self._first_window = FIRST_WINDOW
        self._unacknowledged: deque[int] = deque()

    # ---- writing

    def start(self, *pairs: tuple[int, int]) -> bytes:
        """The preface, with these settings."""
        return PREFACE + self.set(*pairs)

    def set(self, *pairs: tuple[int, int]) -> bytes:
        """SETTINGS, which the server must acknowledge before it may use a larger window."""
        latest = [self._first_window, *self._unacknowledged][-1]
        self._unacknowledged.append(dict(pairs).get(INITIAL_WINDOW_SIZE, latest))
        return settings(*pairs)

    def block(self, path: str, *more: tuple[str, str]) -> bytes:
        """The header block of a call."""
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        replaced = dict(more)
        return self.encoder.encode(
            [(name, replaced.pop(name, value)) for name, value in fields] + [*replaced.items()]
        )

    def head(self, stream_id: int, path: str, *more: tuple[str, str], end: bool = False) -> bytes:
        """The HEADERS of a call, with these further headers."""
        flags = END_HEADERS | (END_STREAM if end else 0)
        return frame(HEADERS, flags, stream_id, self.block(path, *more))

    def call(
        self, stream_id: int, path: str, *payloads: bytes, headers: tuple[tuple[str, str], ...] = ()
    ) -> bytes:
        """A whole call with these messages."""
        body = b"".join(message(payload) for payload in payloads)
        parts = [body[start : start + 16_384] for start in range(0, len(body), 16_384)] or [b""]
        return self.head(stream_id, path, *headers) + b"".join(
            self.data(stream_id, part, end=number == len(parts)) for number, part in enumerate(parts, 1)
        )

    def data(
        self, stream_id: int, payload: bytes = b"", *, end: bool = False, padding: int | None = None
    ) -> bytes:
        """A DATA frame, which takes room in the windows."""
        size = len(payload) if padding is None else len(payload) + 1 + padding
        self.windows[0] -= size
        self.windows[stream_id] -= size
        return data(stream_id, payload, end=end, padding=padding)

    def room(self, stream_id: int) -> int:
        """Bytes of DATA that may be sent on a stream."""
        return min(
            self.windows[0], self.windows[stream_id] + self.settings.get(INITIAL_WINDOW_SIZE, FIRST_WINDOW)
        )

    def allow(self, stream_id: int, size: int) -> bytes:
        """A WINDOW_UPDATE, after which the server may send more."""
        if stream_id:
            self._server_windows[stream_id] += size
        else:
            self.server_window += size
        return window_update(stream_id, size)

    # ---- reading

    def receive(self, received: bytes) -> None:
        """Read bytes of the server; raises AssertionError if they break the protocol."""
        data = self._unread + received
        if not self.frames and data.startswith(b"HTTP/1.1 "):
            # the answer to what looks like a request of HTTP/1.1
            self._unread = data
            return
        position = 0
        while len(data) - position >= 9:
            start = position + 9
            size, (kind, flags) = (
                int.from_bytes(data[position : position + 3]),
                data[position + 3 : start - 4],
            )
            stream_id = int.from_bytes(data[start - 4 : start])
            assert size <= 16_384
            if len(data) < start + size:
                break
            assert self.frames or kind in (SETTINGS, GOAWAY), "the first frame must be SETTINGS"
            self.frames.append((kind, stream_id))
            self._read(kind, flags, stream_id, data[start : start + size])
            position = start + size
        self._unread = data[position:]

    def _read(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self.answers[stream_id] if stream_id else Answer()
        if kind in (HEADERS, DATA):
            assert not answer.done, f"a frame of type {kind} after the end of stream {stream_id}"
        if kind == HEADERS:
            assert flags & END_HEADERS
            fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            if answer.headers:
                answer.trailers = fields
            else:
                answer.headers = fields
            answer.ended = bool(flags & END_STREAM)
        elif kind == DATA:
            assert answer.headers
            answer.body += payload
            answer.ended = bool(flags & END_STREAM)
            self.server_window -= len(payload)
            assert self.server_window >= 0, "more DATA than the window of the connection allows"
            self._server_windows[stream_id] -= len(payload)
            window = self._first_window + self._server_windows[stream_id]
            assert window >= 0 or not payload, "more DATA than the window of the stream allows"
        elif kind == RST_STREAM:
            answer.reset = ERRORS[int.from_bytes(payload)]
        elif kind == SETTINGS and not flags & ACK:
            pairs = [payload[start : start + 6] for start in range(0, len(payload), 6)]
            self.settings |= {int.from_bytes(pair[:2]): int.from_bytes(pair[2:]) for pair in pairs}
        elif kind == SETTINGS:
            if self._unacknowledged:
                self._first_window = self._unacknowledged.popleft()
        elif kind == PING:
            self.pings.append((flags, payload))
        elif kind == GOAWAY:
            last, code = int.from_bytes(payload[:4]), int.from_bytes(payload[4:8])
            self.goaways.append((last, ERRORS[code], payload[8:].decode()))
        elif kind == WINDOW_UPDATE:
            size = int.from_bytes(payload)
            assert size > 0, "a WINDOW_UPDATE of 0"
            self.windows[stream_id] += size
