"""Fuzzing of connections of gRPC clients: messages read from any frames, compared with a simpler reader."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator

from hpack import Decoder as HpackDecoder
from hpack import HPACKError

from tests.support.echo_calls import LATE, STREAM, UNARY, WAIT, Connection, EchoServer
from tests.support.error_log import ErrorLog, errors_of
from tests.support.fuzzing import Decoder, cut
from tests.support.h2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PREFACE,
    RST_STREAM,
    H2Client,
    frame,
    reset,
    settings,
    window_update,
)
from tests.support.h2_connections import CONNECTIONS
from turnpike.service.errors import RequestError

Loop = asyncio.AbstractEventLoop

MAX_HEADER = 1024
MAX_BODY = 100_000
# values of a field of four bytes, such as a stream or a window
NUMBERS = (0, 1, 2, 3, 5, 7, 100, 16_384, 65_535, 1 << 18, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
FLAGS = (0, END_STREAM, END_HEADERS, END_HEADERS | END_STREAM, PADDED, HAS_PRIORITY, 0xFF)


def grpc_decoder(loop: Loop) -> Decoder:
    """HTTP/2 on a connection, whole and cut at random places. Another connection is answered afterwards."""
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    server = EchoServer(max_header=MAX_HEADER, max_body=MAX_BODY, max_inflate_ratio=20, body_seconds=60)
    log = ErrorLog()

    async def exchange(pieces: list[bytes]) -> H2Client:
        """Send the pieces, close when the server waits for more, and check that nothing is left."""
        connection = Connection(server)
        for piece in pieces:
            connection.send(piece)
            await asyncio.sleep(0)
        # a compressed message is read in several turns
        await connection.turns(8)
        connection.wire.close()
        async with asyncio.timeout(10):
            while server.app.counters.in_flight or server.shared.running or server.shared.connections:
                await asyncio.sleep(0)
        assert server.app.budget.bytes == 0
        return connection.client

    async def check_next() -> None:
        """A valid connection is answered."""
        connection = server.connect()
        connection.send(connection.client.call(1, UNARY, b"next"))
        assert (await connection.wait_for(1)).messages == [b"next"]
        connection.check_windows()
        connection.wire.close()
        await connection.turns(2)

    def read(data: bytes) -> None:
        with errors_of("service", log):
            whole = loop.run_until_complete(exchange([data]))
            whole_messages = Counter(server.app.read)
            server.app.read.clear()
            parts = loop.run_until_complete(exchange(cut(data, random.Random(data))))
            messages = Counter(server.app.read)
            loop.run_until_complete(check_next())
            server.app.read.clear()
        assert not errors, errors
        assert log.messages == []
        # calls in the segment of an error are not answered
        expected = Counter(reference_messages(data))
        assert whole_messages <= expected
        assert messages <= expected
        problems = [error for _, error, _ in parts.goaways]
        whole_problems = [error for _, error, _ in whole.goaways]
        if not {"FLOW_CONTROL_ERROR", "STREAM_CLOSED"}.intersection(problems + whole_problems):
            # whether a window is exceeded, or frames after the end of a stream meet its call, depends on the
            # calls that are open at the time
            assert whole_messages <= messages
            assert problems == whole_problems
        problems += sorted({answer.reset or "NO_ERROR" for answer in parts.answers.values()} - {"NO_ERROR"})
        if problems or not messages:
            # in letters, because outcomes are compared without their numbers
            statuses = sorted({chr(97 + answer.status) for answer in parts.answers.values() if answer.status})
            raise RequestError(" ".join(problems + statuses))

    seeds = [
        client.start((4, 1 << 20)) + client.allow(0, 1 << 20) + write(client)
        for write in CONNECTIONS[:-1]
        for client in [H2Client()]
    ]
    tokens = (
        *(settings((4, 0)), settings((4, 5)), window_update(0, 5), window_update(1, 5), reset(1), reset(3)),
        *(H2Client().head(9, STREAM), H2Client().call(11, UNARY, b"token"), H2Client().head(13, WAIT)),
        *(H2Client().head(15, LATE), frame(CONTINUATION, END_HEADERS, 1), frame(DATA, END_STREAM, 1)),
        *(b"\x82", b"\xbe", b"\x40\x01a\x01b", b"\x20", PREFACE, b"POST ", b"\0\0\0\0\x05hello"),
    )
    return Decoder(read, seeds, (RequestError,), tokens, change_frames, memory=(512, 16 << 20), inputs=300)


def frames_of(data: bytes) -> Iterator[bytes]:
    """The whole frames after the preface, and the rest."""
    position = len(PREFACE)
    while len(data) - position >= 9:
        size = 9 + int.from_bytes(data[position : position + 3])
        if len(data) - position < size:
            break
        yield data[position : position + size]
        position += size
    yield data[position:]


def change_frames(data: bytes, draw: random.Random) -> bytes:
    """A connection with one frame removed, repeated, moved, split, or changed in one of its fields."""
    if not data.startswith(PREFACE):
        return data
    frames = list(frames_of(data))
    place = draw.randrange(len(frames))
    changed = frames.pop(place)
    change = draw.randrange(9)
    if change == 0:
        return PREFACE + b"".join(frames)
    if change == 1:
        frames[place:place] = [changed] * draw.choice((2, 2, 3, 20))
    elif change == 2 or len(changed) < 9:
        frames.insert(draw.randrange(len(frames) + 1), changed)
    else:
        kind, flags = changed[3:5]
        stream_id, payload = int.from_bytes(changed[5:9]), changed[9:]
        middle = draw.randrange(len(payload) + 1)
        new = {
            3: lambda: frame(draw.randrange(11), flags, stream_id, payload),
            4: lambda: frame(kind, draw.choice(FLAGS), stream_id, payload),
            5: lambda: frame(kind, flags, draw.choice((*range(8), *NUMBERS)), payload),
            6: lambda: frame(kind, flags, stream_id, draw.choice(NUMBERS).to_bytes(4) + payload[4:]),
            7: lambda: (
                frame(kind, flags & ~(END_STREAM | END_HEADERS), stream_id, payload[:middle])
                + frame(CONTINUATION if kind == HEADERS else kind, flags, stream_id, payload[middle:])
            ),
            8: lambda: frame(kind, flags, stream_id, payload[:middle] + draw.randbytes(3) + payload[middle:]),
        }[change]()
        frames.insert(place, new)
    return PREFACE + b"".join(frames)


def reference_messages(data: bytes) -> list[bytes]:
    """All messages that a client may have sent, up to the first header block that is none."""
    decoder = HpackDecoder(MAX_HEADER)
    headers: dict[int, dict[bytes, bytes]] = {}
    bodies: dict[int, bytes] = defaultdict(bytes)
    ended: set[int] = set()
    block, block_flags = b"", 0
    for part in frames_of(data):
        if len(part) < 9:
            break
        (kind, flags), stream_id = part[3:5], int.from_bytes(part[5:9]) & 0x7FFFFFFF
        payload = part[9:]
        if kind in (HEADERS, DATA) and flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]] if payload else b""
        if kind == HEADERS:
            block, block_flags = payload[5 if flags & HAS_PRIORITY else 0 :], flags
        elif kind == CONTINUATION:
            block += payload
        if kind in (HEADERS, CONTINUATION) and flags & END_HEADERS:
            try:
                fields = dict(decoder.decode(block, raw=True))
            except HPACKError:
                break
            headers.setdefault(stream_id, fields)  # type: ignore[arg-type]
            if block_flags & END_STREAM:
                ended.add(stream_id)
        elif kind == DATA and stream_id not in ended:
            bodies[stream_id] += payload
            if flags & END_STREAM:
                ended.add(stream_id)
        elif kind == RST_STREAM:
            ended.add(stream_id)
    return [
        text
        for stream_id, body in bodies.items()
        if stream_id in headers
        for text in _messages(body, headers[stream_id].get(b"grpc-encoding"))
    ]


def _messages(body: bytes, encoding: bytes | None) -> Iterator[bytes]:
    position = 0
    while len(body) - position >= 5:
        size = int.from_bytes(body[position + 1 : position + 5])
        text = body[position + 5 : position + 5 + size]
        if len(text) < size:
            break
        if body[position]:
            try:
                text = zlib.decompress(text, 31 if encoding == b"gzip" else 15)
            except zlib.error:
                break
        yield text
        position += 5 + size
