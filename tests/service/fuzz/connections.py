"""Fuzzing of connections: requests read from any bytes, compared with what h11 reads."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from typing import Any

import h11

from tests.support.fuzzing import Decoder, cut
from tests.support.in_process_worker import MemoryTransport
from turnpike.service.errors import RequestError
from turnpike.service.http.connection.http_state import HttpState
from turnpike.service.http.connection.protocol import HttpProtocol
from turnpike.service.http.connection.shared_state import ConnectionLimits, SharedState
from turnpike.service.requests.request import ClientGoneError, Request
from turnpike.service.requests.response import Response

Loop = asyncio.AbstractEventLoop

MAX_HEADER = 1024
# h11 writes those about the length in its own way. Ours leaves out Upgrade, which it never follows, and takes
# Host from an absolute URL.
UNCOMPARED_HEADERS = (b"transfer-encoding", b"content-length", b"upgrade", b"host")
ANSWER_START = re.compile(rb"HTTP/1\.1 \d{3} ")


class RecordingApplication:
    """Reads the body of each request, and keeps what arrived."""

    def __init__(self) -> None:
        self.connection_limits = ConnectionLimits(MAX_HEADER, 10, 75)
        self.requests: list[tuple[Any, ...]] = []
        self.refused: list[int] = []

    async def handle(self, request: Request) -> None:
        parts, more = [], True
        head = request.head
        try:
            while more:
                part, more = await request.next_chunk()
                parts.append(part)
        except ClientGoneError:
            return
        headers = [header for header in head.headers if header[0] not in UNCOMPARED_HEADERS]
        self.requests.append((head.method, head.raw_path, head.query, headers, b"".join(parts)))
        waiting = request.respond(Response(b"{}"))
        assert waiting is None

    def count_refused(self, status: int) -> str:
        self.refused.append(status)
        return "id"


def http_decoder(loop: Loop) -> Decoder:
    """HTTP on a connection, cut at random places; h11 must not understand a request in another way."""
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))

    def read(data: bytes) -> None:
        application, shared = RecordingApplication(), SharedState()
        wire = MemoryTransport()

        async def serve() -> None:
            connection = HttpProtocol(application, shared, loop)
            wire.protocol = connection
            connection.connection_made(wire)
            for piece in cut(data, random.Random(data)):
                wire.receive(piece)
                check_state(connection)
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            wire.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert not shared.connections
            assert not shared.running

        loop.run_until_complete(serve())
        assert not errors, errors
        answers = bytes(wire.written).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
        assert len(ANSWER_START.findall(answers)) == answers.count(b"x-request-id: ")
        assert len(application.refused) <= 1
        for ours, theirs in zip(application.requests, reference_requests(data), strict=False):
            assert ours == theirs
        if application.refused:
            raise RequestError(f"refused with {application.refused[0]}")
        if not application.requests:
            raise RequestError("no request")

    chunks = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n"
    host = b"Host: x\r\n"
    seeds = [
        b"GET /v2?a=b%20c HTTP/1.1\r\n" + host + b"\r\n",
        b"POST /v2/models/m/infer HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nX-A: b c \r\n\r\nhello",
        b"POST /a HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        b"POST /a HTTP/1.1\r\n"
        + host
        + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n0\r\n\r\n",
        b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"\r\nPUT /b HTTP/1.1\r\n"
        + host
        + b"Content-Length: 0\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"POST /a HTTP/1.1\r\n"
        + host
        + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /1 HTTP/1.1\r\n"
        + host
        + b"Content-Length: 3\r\n\r\nabcPOST /2 HTTP/1.1\r\n"
        + host
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + chunks
        + b"GET /3 HTTP/1.1\r\n"
        + host
        + b"\r\n",
    ]
    tokens = (
        *(b"\r\n\r\n", b"\r\n", b"\n", b"\r", b": ", b"0\r\n\r\n", b"Content-Length: ", b"Host: y\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"chunked", b", "),
        *(b"Connection: close\r\n", b"Upgrade: websocket\r\n", b"Connection: upgrade\r\n", b"ffffffff\r\n"),
        *(b"HTTP/1.0", b"HTTP/2.0", b"CONNECT ", b"OPTIONS * ", b"http://y/", b"\t", b"\x0b", b";a=b", b"+5"),
        *(b"Content-Length: 5\r\nContent-Length: 6\r\n", b" folded\r\n", b"A" * 1100, b"X-Trailer: 2\r\n"),
    )
    return Decoder(read, seeds, (RequestError,), tokens, inputs=500)


def check_state(connection: HttpProtocol) -> None:
    """The state says whether a body is expected, as does the request that arrived last."""
    newest, state = connection.newest_request, connection.state
    if state < HttpState.REFUSED:
        assert (state is HttpState.BODY) == (newest is not None and not newest.received)


def reference_requests(data: bytes) -> list[tuple[Any, ...]]:
    """The requests that h11 reads, up to the first that is malformed or incomplete."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    found: list[tuple[Any, ...]] = []
    with contextlib.suppress(h11.RemoteProtocolError):
        reader.receive_data(data)
        while True:
            head = reader.next_event()
            if not isinstance(head, h11.Request):
                break
            parts = []
            while isinstance(event := reader.next_event(), h11.Data):
                parts.append(bytes(event.data))
            if not isinstance(event, h11.EndOfMessage):
                break
            # the path of an absolute URL, without the fragment that no client sends
            path, _, query = re.sub(rb"^https?://[^/?#]*|#.*$", b"", bytes(head.target)).partition(b"?")
            headers = [
                (bytes(name), bytes(value)) for name, value in head.headers if name not in UNCOMPARED_HEADERS
            ]
            found.append((head.method.decode(), path.decode("latin-1"), query, headers, b"".join(parts)))
            reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            reader.send(h11.EndOfMessage())
            if reader.our_state is not h11.DONE or reader.their_state is not h11.DONE:
                break
            reader.start_next_cycle()
    return found
