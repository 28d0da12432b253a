"""A server of gRPC in this process whose calls echo their messages, and its connections without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvloop

from tests.support.h2_client import H2Client
from tests.support.in_process_worker import MemoryTransport, until
from turnpike.service.config.settings import Settings
from turnpike.service.errors import RequestError, UnimplementedError
from turnpike.service.grpc.connection import http2_connection
from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.connection.header_turns import HeaderTurns
from turnpike.service.grpc.connection.protocol import GrpcProtocol
from turnpike.service.grpc.methods.read_messages import next_message, read_message
from turnpike.service.http.compression import AnswerCompressor
from turnpike.service.http.connection.shared_state import ConnectionLimits, SharedState
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.middleware import RequestMiddleware
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Router
from turnpike.service.telemetry.counters import RequestCounters

UNARY, STREAM, WAIT, LARGE, LATE, FAIL, REFUSE = (
    f"/test.Echo/{name}" for name in ("Unary", "Stream", "Wait", "Large", "Late", "Fail", "Refuse")
)


class EchoCalls:
    """The application: its methods, and what they were called with."""

    def __init__(self, options: Settings) -> None:
        self.connection_limits = ConnectionLimits(
            options.max_header, options.header_seconds, options.idle_seconds
        )
        self.counters = RequestCounters()
        self.budget = MemoryBudget(options.max_held)
        self._bodies = BodyReader(
            self.budget,
            limit=options.max_body,
            seconds=options.body_seconds,
            max_ratio=options.max_inflate_ratio,
        )
        self.compressed = AnswerCompressor(self.budget).compressed
        observer = RequestObserver(self.counters, None, None)
        self.count_refused = observer.count_refused
        self.count_stream_end = self.counters.count_stream_end
        self.count_connection_end = self.counters.count_connection_end
        router = Router(self._unknown)
        for path, endpoint in {
            UNARY: self._unary,
            STREAM: self._stream,
            WAIT: self._wait,
            LARGE: self._large,
            LATE: self._late,
            FAIL: self._fail,
            REFUSE: self._refuse,
        }.items():
            router.add("POST", path, "open", endpoint, path, {})
        self.handle = RequestMiddleware(router, Authenticator(), self.budget, observer).handle
        # messages in the order in which they were read, and the numbers of calls
        self.read: list[bytes] = []
        self.started = self.cancelled = 0
        # ends the calls of WAIT and lets those of LATE begin to read
        self.release = asyncio.Event()

    async def _unary(self, request: Request) -> Response:
        self.started += 1
        self.read.append(await read_message(self._bodies, cast("Call", request)))
        return Response(self.read[-1])

    async def _stream(self, request: Request) -> None:
        """Answers each message with itself."""
        self.started += 1
        call = cast("Call", request)
        while (data := await next_message(self._bodies, self.budget, call)) is not None:
            self.read.append(data)
            await call.send_message(data)
        call.finish()

    async def _wait(self, request: Request) -> Response:
        self.started += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Response(b"released")

    async def _large(self, request: Request) -> Response:
        """Answers with as many bytes as the message says."""
        self.started += 1
        return Response(bytes(int(await read_message(self._bodies, cast("Call", request)))))

    async def _late(self, request: Request) -> Response:
        """Reads its message when it is allowed to."""
        self.started += 1
        await self.release.wait()
        return await self._unary(request)

    async def _fail(self, request: Request) -> Response:
        self.started += 1
        raise RuntimeError("a bug")

    async def _refuse(self, request: Request) -> Response:
        """Raises an error with the message as its text."""
        self.started += 1
        raise RequestError((await read_message(self._bodies, cast("Call", request))).decode())

    async def _unknown(self, request: Request) -> Response:
        raise UnimplementedError(request.head.path)


class Connection:
    """Both ends of a connection."""

    def __init__(self, server: EchoServer) -> None:
        self.server, self.client, self.wire = server, H2Client(), MemoryTransport()
        self.protocol = GrpcProtocol(server.app, server.shared, server.turns)
        self.wire.protocol = self.protocol
        self.protocol.connection_made(self.wire)
        self._read = 0

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.wire.receive(piece)
        self._receive()

    def _receive(self) -> None:
        received = bytes(self.wire.written[self._read :])
        self._read += len(received)
        self.client.receive(received)

    async def until(self, condition: Callable[[H2Client], Any]) -> None:
        """Wait until the client has read what makes the condition true."""

        def holds() -> bool:
            self._receive()
            return bool(condition(self.client))

        await until(holds)

    async def turns(self, count: int = 5) -> None:
        """Let the event loop take some turns."""
        for _ in range(count):
            await asyncio.sleep(0)
        self._receive()

    async def wait_for(self, stream_id: int) -> Any:
        """The answer on a stream, once it has ended."""
        await self.until(lambda client: client.answers[stream_id].done)
        return self.client.answers[stream_id]

    def pass_time(self, seconds: float) -> None:
        """Have the connection check its limits as if this time had passed."""
        self.protocol.check_timeouts(asyncio.get_running_loop().time() + seconds)
        self._receive()

    async def upload(
        self, stream_id: int, body: bytes, *, padding: int | None = None, frame_bytes: int = 16_384
    ) -> None:
        """Send the body of a call as the windows allow, and end it."""
        overhead = 0 if padding is None else 1 + padding
        position = 0
        while True:
            await self.until(lambda client: client.room(stream_id) > overhead)
            size = min(frame_bytes, self.client.room(stream_id)) - overhead
            part = body[position : position + size]
            position += len(part)
            is_last = position == len(body)
            self.send(self.client.data(stream_id, part, end=is_last, padding=padding))
            if is_last:
                return

    def check_windows(self) -> None:
        """All bytes of DATA that the client has sent are credited once, and answers took what they may.

        Holds if the client has read all that was sent, and no call is left.
        """
        server = self.protocol
        assert not server._calls
        assert not server.blocked
        assert server._receive_window + server._uncredited_bytes == http2_connection.CONNECTION_WINDOW
        assert 0 <= server._uncredited_bytes <= http2_connection.CONNECTION_WINDOW // 2
        assert self.client.windows[0] == server._receive_window
        assert self.client.server_window == server.send_window


class EchoServer:
    """The application, and the state that its connections share."""

    def __init__(self, **options: Any) -> None:
        self.app = EchoCalls(Settings(**options))
        self.shared = SharedState()
        self.turns = HeaderTurns()

    def connect(self, *pairs: tuple[int, int]) -> Connection:
        """A connection whose client has sent its preface with these settings."""
        connection = Connection(self)
        connection.send(connection.client.start(*pairs))
        return connection


def run(scene: Callable[[EchoServer], Awaitable[None]], **options: Any) -> None:
    """Run a scene with a server of its own, and check that no call is left at its end."""

    async def play() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = EchoServer(**options)
        try:
            await scene(server)
        finally:
            for connection in list(server.shared.connections):
                connection.transport.abort()
            await asyncio.sleep(0)
        await until(lambda: not (server.app.counters.in_flight or server.shared.running))
        assert server.app.budget.bytes == 0
        assert not server.shared.connections
        assert not errors, errors

    uvloop.run(play())
