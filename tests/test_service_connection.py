"""Connections: what is no request is refused in JSON, what takes too long ends, the rest is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from service import connection as connections
from service import server as servers
from service.acceptor import Shares
from service.listener import listen
from service.server import Server
from service.settings import Settings

GET = b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """Answers with the path and the length of the body; some paths answer in other ways."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone = 0
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.asked.append(path)
        if path == "/early":
            # an answer before the body is there, as to one that is too large
            await answer(send, 413, b"{}", close="close" in scope["query_string"].decode())
            return
        if path == "/large":
            await answer(send, 200, b"x" * 50_000_000)
            return
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            length += len(message["body"])
            if not message["more_body"]:
                break
        if path == "/slow":
            await self.go.wait()
        await answer(send, 200, json.dumps({"path": path, "bytes": length}).encode())


async def answer(send: Any, status: int, body: bytes, close: bool = False) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Place:
    """A server in this process, and clients of it."""

    def __init__(self, app: Echo, server: Server, port: int) -> None:
        self.app, self.server, self.port = app, server, port
        self.clients: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        return reader, writer

    async def leave(self) -> None:
        for writer in self.clients:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self.clients), return_exceptions=True)

    async def say(self, data: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 5)


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """The next answer on a connection: status, headers, body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 5)
    return int(head[0].split()[1]), headers, body


@contextlib.asynccontextmanager
async def place(**settings: Any) -> AsyncIterator[Place]:
    listener = listen("127.0.0.1", 0)
    app = Echo()
    given = {"drain_wait": 0, "drain_seconds": 0.2, **settings}
    server = Server(Settings(**given), listener, Shares(1), 1, app)
    where = Place(app, server, listener.getsockname()[1])
    try:
        yield where
    finally:
        app.go.set()
        await where.leave()
        if listener.fileno() != -1:
            last = asyncio.Event()
            last.set()
            await server.drain(last)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "HANDSHAKE_SECONDS", 0.02)
    monkeypatch.setattr(servers, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(servers, "STEP_SECONDS", 0.005)


def run(test: Callable[[Place], Awaitable[None]], **settings: Any) -> None:
    async def scene() -> None:
        async with place(**settings) as where:
            await test(where)

    uvloop.run(scene())


def refusal(raw: bytes) -> tuple[int, str]:
    """The status and the sentence of an answer that ends a connection."""
    head, body = raw.split(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    assert b"date: " in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /a HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET \xff\xff HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /a HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET /a HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na",
        b"POST /a HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_request_is_refused_in_json(data: bytes) -> None:
    """400, one sentence, and the connection closes; nobody waits for an answer of the application."""

    async def test(where: Place) -> None:
        status, error = refusal(await where.say(data))
        assert status == 400
        assert error == "the request: expected HTTP/1.1, got something else"
        assert where.app.asked in ([], ["/a"])
        assert where.app.gone == len(where.app.asked)

    run(test)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_head_that_is_too_long_is_refused(pieces: int) -> None:
    """431 however it arrives, and one that just fits is taken."""

    async def test(where: Place) -> None:
        for size, fits in ((1500, True), (2500, False)):
            data = b"GET /quick HTTP/1.1\r\nx: " + b"y" * size + b"\r\nconnection: close\r\n\r\n"
            reader, writer = await where.connect()
            step = len(data) // pieces + 1
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await asyncio.sleep(0.01)
            raw = await asyncio.wait_for(reader.read(), 5)
            if fits:
                assert raw.startswith(b"HTTP/1.1 200")
            else:
                assert refusal(raw) == (431, "the headers: expected at most 2000 bytes, got more")
        assert where.app.asked == ["/quick"]

    run(test, max_header=2000)


def test_a_head_without_end_is_refused_before_it_is_long() -> None:
    """A client that sends headers for ever is stopped at the limit, not when it is done."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"GET /quick HTTP/1.1\r\n")
        for _ in range(100):
            writer.write(b"a-header: of some length\r\n")
            await writer.drain()
        assert (await answered(reader))[0] == 431

    run(test, max_header=2000)


def test_a_large_body_is_no_long_head() -> None:
    """Head and body in one piece, with a body far beyond the limit of heads."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        for _ in range(2):
            writer.write(b"POST /quick HTTP/1.1\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000)
            status, _, body = await answered(reader)
            assert (status, json.loads(body)["bytes"]) == (200, 9000)

    run(test, max_header=1024)


def test_headers_that_drip_are_refused_in_time() -> None:
    """408 when the head is not there in time, however busily it is sent."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        said = asyncio.create_task(reader.read())
        writer.write(b"GET /quick HTTP/1.1\r\nx: ")
        async with asyncio.timeout(5):
            while not said.done():
                writer.write(b"y")
                await asyncio.sleep(0.02)
        assert refusal(said.result()) == (
            408,
            "the headers: expected all of them within 0.2 seconds, got some",
        )
        assert where.app.asked == []

    run(test, header_seconds=0.2)


@pytest.mark.parametrize("before", [b"", GET])
def test_a_silent_connection_is_closed(before: bytes) -> None:
    """Without a word, when it was never used and when it was."""

    async def test(where: Place) -> None:
        raw = await where.say(before)
        assert raw.count(b"HTTP/1.1") == len(before[:1])

    run(test, header_seconds=0.2, idle_seconds=0.2)


def test_a_slow_answer_outlives_the_limits_of_silence() -> None:
    """A connection on which a request is being answered is not idle."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await asyncio.sleep(0.3)
        where.app.go.set()
        assert (await answered(reader))[0] == 200

    run(test, header_seconds=0.1, idle_seconds=0.1)


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """An answer that nobody takes does not stay in memory for ever."""

    async def test(where: Place) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", where.port))
            await asyncio.get_running_loop().sock_sendall(client, GET.replace(b"quick", b"large"))
            open_ones = where.server._connections.connections
            await until(lambda: len(where.app.asked) == 1)
            assert open_ones
            await until(lambda: not open_ones)

    run(test, idle_seconds=0.2)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def test_an_early_answer_is_not_destroyed_by_the_rest_of_the_body() -> None:
    """A client that first sends all it has still reads why it was refused: no reset comes before."""

    async def test(where: Place) -> None:
        size = 8_000_000
        reader, writer = await where.connect()
        writer.write(b"POST /early?close HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size)
        await asyncio.sleep(0.05)
        for _ in range(8):
            writer.write(b"b" * (size // 8))
            await writer.drain()
        assert (await answered(reader))[0] == 413
        assert await reader.read() == b""

    run(test)


def test_a_connection_goes_on_after_a_body_that_was_not_wanted() -> None:
    """The rest of a small body is passed over, and the next request is answered."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 1000\r\n\r\n")
        assert (await answered(reader))[0] == 413
        writer.write(b"b" * 1000 + GET)
        assert (await answered(reader))[0] == 200

    run(test)


def test_a_body_that_is_not_wanted_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond some bytes the server closes, soon after it has said so."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.1)

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 1000000000000\r\n\r\n")
        assert (await answered(reader))[0] == 413
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(pour(writer), 5)

    run(test, header_seconds=0.2)


async def pour(writer: asyncio.StreamWriter) -> None:
    """Send without end."""
    while True:
        writer.write(b"b" * 100_000)
        await writer.drain()


def test_a_body_that_was_not_asked_for_ends_the_connection() -> None:
    """After Expect: 100-continue and an early answer, what follows may be body or request: none is taken."""

    async def test(where: Place) -> None:
        raw = await where.say(b"POST /early HTTP/1.1\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n")
        assert raw.startswith(b"HTTP/1.1 413")
        assert b"100 Continue" not in raw

    run(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    """Several in one piece, with and without bodies."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        post = b"POST /%d HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
        writer.write(b"".join([GET, post % 1, GET, post % 2]))
        paths = [json.loads((await answered(reader))[2])["path"] for _ in range(4)]
        assert paths == ["/quick", "/1", "/quick", "/2"]

    run(test)


def test_nonsense_behind_a_request_does_not_spoil_its_answer() -> None:
    """The answer that is owed comes whole, then the connection closes."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: where.app.asked == ["/slow"])
        writer.write(b"\x00\x01\x02 nonsense\r\n\r\n")
        await asyncio.sleep(0.05)
        where.app.go.set()
        status, headers, _ = await answered(reader)
        assert (status, headers["connection"]) == (200, "close")
        assert await reader.read() == b""

    run(test)


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_an_upgrade_is_passed_over(upgrade: bytes) -> None:
    """A client that offers another protocol is answered in this one, with its body and again after that."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        head = (
            b"POST /up HTTP/1.1\r\nconnection: upgrade\r\nupgrade: %b\r\ncontent-length: 5\r\n\r\n" % upgrade
        )
        writer.write(head + b"hello" + head + b"hello")
        writer.write(GET)
        for path, size in (("/up", 5), ("/up", 5), ("/quick", 0)):
            status, _, body = await answered(reader)
            assert (status, json.loads(body)) == (200, {"path": path, "bytes": size})

    run(test)


def test_this_is_no_proxy() -> None:
    """CONNECT asks for what only a proxy does, with a path or without one."""

    async def test(where: Place) -> None:
        for target in (b"/a", b"example.org:443"):
            raw = await where.say(b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            assert refusal(raw)[0] == 400
        assert where.app.asked == []

    run(test)


def test_a_client_that_leaves_is_noticed() -> None:
    """The application is told, so that what nobody waits for need not run."""

    async def test(where: Place) -> None:
        _, writer = await where.connect()
        writer.write(b"POST /quick HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc")
        await until(lambda: where.app.asked == ["/quick"])
        writer.close()
        await until(lambda: where.app.gone == 1)

    run(test)


def test_draining_ends_each_connection_with_an_answer() -> None:
    """One in hand, one that waits for its next request, and one that is new all get theirs."""

    async def test(where: Place) -> None:
        slow, idle = await where.connect(), await where.connect()
        slow[1].write(GET.replace(b"quick", b"slow"))
        idle[1].write(GET)
        assert "connection" not in (await answered(idle[0]))[1]
        await until(lambda: "/slow" in where.app.asked)
        last = asyncio.Event()
        last.set()
        ending = asyncio.create_task(where.server.drain(last))
        await asyncio.sleep(0.05)
        fresh = await where.connect()
        fresh[1].write(GET)
        idle[1].write(GET)
        where.app.go.set()
        for reader, _ in (slow, idle, fresh):
            status, headers, _ = await answered(reader)
            assert (status, headers["connection"]) == (200, "close")
            assert await reader.read() == b""
        assert await ending == 0

    run(test, drain_wait=0.3, drain_seconds=5)


def test_a_connection_made_before_the_port_closed_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request may come a moment after the port has closed."""
    monkeypatch.setattr(servers, "QUIET_SECONDS", 0.5)

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        last = asyncio.Event()
        last.set()
        ending = asyncio.create_task(where.server.drain(last))
        await asyncio.sleep(0.2)
        with pytest.raises(ConnectionRefusedError):
            await where.connect()
        writer.write(GET)
        assert (await answered(reader))[0] == 200
        assert await ending == 0

    run(test, drain_seconds=5)


def test_connections_that_wait_in_the_queue_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that were made before the port shut, though none was accepted by then."""

    async def test(where: Place) -> None:
        acceptor = where.server._acceptor
        acceptor._pause()
        waiting = [await where.connect() for _ in range(20)]
        for _, writer in waiting:
            writer.write(GET)
        last = asyncio.Event()
        last.set()
        assert await where.server.drain(last) == 0
        for reader, _ in waiting:
            assert (await answered(reader))[0] == 200

    run(test, drain_seconds=5)


def test_pipelined_requests_are_all_answered_while_draining() -> None:
    """What arrives behind a request in hand is answered, too: only the last answer says close."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: where.app.asked == ["/slow"])
        last = asyncio.Event()
        last.set()
        ending = asyncio.create_task(where.server.drain(last))
        await asyncio.sleep(0.02)
        writer.write(GET)
        await asyncio.sleep(0.02)
        where.app.go.set()
        assert "connection" not in (await answered(reader))[1]
        assert (await answered(reader))[1]["connection"] == "close"
        assert await ending == 0

    run(test, drain_seconds=5)


def test_what_takes_too_long_is_cut_and_counted() -> None:
    """After drain_seconds, the number of requests that got no answer is said."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: where.app.asked == ["/slow"])
        last = asyncio.Event()
        last.set()
        assert await where.server.drain(last) == 1
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    run(test, drain_seconds=0.1)
