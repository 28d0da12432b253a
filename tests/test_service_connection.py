"""Connections: what is no request is refused in JSON, what takes too long ends, the rest is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
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
        self.abandoned = False
        self.go = asyncio.Event()
        # how many requests waited behind another at most
        self.waiting = 0
        self.connections: Any = ()

    def abandon(self) -> None:
        """What a connection calls when its client has gone, here of any request."""
        self.abandoned = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.asked.append(path)
        self.waiting = max([self.waiting, *(len(one.pipeline) for one in self.connections)])
        if path == "/gone":
            scope["exchange"] = self
        if path == "/early":
            # an answer before the body is there, as to one that is too large
            await answer(send, 413, b"{}")
            return
        if path == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await self.go.wait()
            await send({"type": "http.response.body", "body": b"all"})
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
        if path in ("/slow", "/gone"):
            await self.go.wait()
        if self.abandoned:
            return
        body = json.dumps({"path": path, "bytes": length}).encode()
        await answer(send, 200, body, close=scope["query_string"] == b"close")


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
    app.connections = server._connections.connections
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
        b"GET /a HTTP/2.1\r\n\r\n",
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


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"GET /a\r\n\r\n", "the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/0.9"),
        (
            b"GET /a HTTP/2.0\r\nhost: x\r\n\r\n",
            "the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/2.0",
        ),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", "the headers: expected one Host, got 2"),
    ],
)
def test_what_another_server_might_read_otherwise_is_refused(data: bytes, sentence: str) -> None:
    """Versions that are not spoken here, and two hosts."""

    async def test(where: Place) -> None:
        assert refusal(await where.say(data)) == (400, sentence)
        assert where.app.asked == []

    run(test)


def test_the_first_version_is_spoken_too() -> None:
    """One request a connection, as HTTP/1.0 has it."""

    async def test(where: Place) -> None:
        raw = await where.say(GET.replace(b"1.1", b"1.0"))
        assert raw.startswith(b"HTTP/1.1 200")

    run(test)


def test_refusals_are_counted_and_have_an_id() -> None:
    """Whoever counts is told status and sentence, and the answer has the id that it gives."""
    counted = []

    def count(status: int, sentence: str) -> str:
        counted.append((status, sentence))
        return f"id-{len(counted)}"

    async def test(where: Place) -> None:
        where.server._connections.when_refused = count
        raw = await where.say(b"nonsense\r\n\r\n")
        assert b"\r\nx-request-id: id-1\r\n" in raw.partition(b"\r\n\r\n")[0] + b"\r\n"
        assert counted == [refusal(raw)]

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


@pytest.mark.parametrize("cut", [1, 1010, 20_010])
def test_many_short_heads_are_no_long_one(cut: int) -> None:
    """Each is measured by its own bytes, wherever the pieces begin that it comes in."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        data = GET * 1200
        writer.write(data[:cut])
        await asyncio.sleep(0.05)
        writer.write(data[cut:])
        for _ in range(1200):
            assert (await answered(reader))[0] == 200

    run(test, max_header=1024)


def test_a_body_is_no_part_of_the_head_behind_it() -> None:
    """The next request may begin in the piece in which a large body ends."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        post = b"POST /quick HTTP/1.1\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000
        writer.write(post + GET[:10])
        assert (await answered(reader))[0] == 200
        writer.write(GET[10:])
        assert (await answered(reader))[0] == 200

    run(test, max_header=1024)


def test_a_head_without_end_behind_a_request_is_refused() -> None:
    """It is measured from the next piece on, when it did not begin with its own."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET + b"GET /quick HTTP/1.1\r\nx: ")
        assert (await answered(reader))[0] == 200
        for _ in range(100):
            writer.write(b"y" * 25)
            await writer.drain()
        assert (await answered(reader))[0] == 431
        assert where.app.asked == ["/quick"]

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
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size)
        await asyncio.sleep(0.05)
        for _ in range(8):
            writer.write(b"b" * (size // 8))
            await writer.drain()
        assert (await answered(reader))[0] == 413
        assert await reader.read() == b""

    run(test)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_an_early_answer_over_https_is_not_destroyed_either(pair: tuple[Path, Path]) -> None:
    """Where the end cannot be said without closing, the client is left time to read all the same."""
    cert, key = pair
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False

    async def test(where: Place) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", where.port, ssl=context)
        where.clients.append(writer)
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 8000000\r\n\r\n")
        await asyncio.sleep(0.05)
        for _ in range(8):
            writer.write(b"b" * 1_000_000)
            await writer.drain()
        status, headers, _ = await answered(reader)
        assert (status, headers["connection"]) == (413, "close")

    run(test, tls_cert=cert, tls_key=key)


def test_a_connection_goes_on_after_a_body_that_was_not_wanted() -> None:
    """The rest of a small body is passed over, and the next request is answered."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /early HTTP/1.1\r\ncontent-length: 1000\r\n\r\n")
        assert (await answered(reader))[0] == 413
        writer.write(b"b" * 1000 + GET)
        assert (await answered(reader))[0] == 200

    run(test)


@pytest.mark.parametrize(
    ("head", "closes"),
    [
        (b"content-length: %d" % (1 << 20), False),
        (b"content-length: %d" % ((1 << 20) + 1), True),
        (b"transfer-encoding: chunked", True),
        (b"expect: 100-continue\r\ncontent-length: 1", True),
    ],
)
def test_an_early_answer_says_whether_it_is_the_last(head: bytes, closes: bool) -> None:
    """A client that may have more to send than is passed over learns that it cannot go on."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /early HTTP/1.1\r\n" + head + b"\r\n\r\n")
        status, headers, _ = await answered(reader)
        assert (status, headers.get("connection")) == (413, "close" if closes else None)
        if closes:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        else:
            writer.write(b"b" * (1 << 20) + GET)
            assert (await answered(reader))[0] == 200

    run(test)


def test_a_large_body_that_is_read_ends_nothing() -> None:
    """An answer after the whole body is not the last, however long the body was."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        body = b"b" * 1_500_000
        writer.write(b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.write(b"POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        for path, size in (("/a", len(body)), ("/b", 3)):
            _, headers, got = await answered(reader)
            assert json.loads(got) == {"path": path, "bytes": size}
            assert "connection" not in headers

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


@pytest.mark.parametrize("first", ["quick", "slow"])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"X\r\n\r\n", 400),
        (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
        (b"CONNECT /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nx: " + b"y" * 3000 + b"\r\n\r\n", 431),
        (b"GET /a HTTP/1.1\r\nx: " + b"y" * 10, 408),
        (b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_requests_before_nonsense_are_answered(data: bytes, status: int, first: str) -> None:
    """All of them, in order, then comes the refusal, and the connection ends."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", first.encode()) + GET * 2 + data)
        await asyncio.sleep(0.05)
        where.app.go.set()
        for path in (first, "quick", "quick"):
            _, _, body = await answered(reader)
            assert json.loads(body)["path"] == f"/{path}"
        assert refusal(await asyncio.wait_for(reader.read(), 5))[0] == status
        assert "/a" not in where.app.asked
        writer.close()
        await until(lambda: not where.app.connections)

    run(test, max_header=2000, header_seconds=0.2)


def test_requests_behind_the_last_answer_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an answer that ends the connection it is closed, whatever waits behind and whoever stays."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.1)

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(
            GET.replace(b"quick", b"slow?close") + GET + b"POST /a HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc"
        )
        await until(lambda: where.app.asked == ["/slow"])
        await asyncio.sleep(0.02)
        where.app.go.set()
        assert (await answered(reader))[1]["connection"] == "close"
        await until(lambda: not where.app.connections)
        assert where.app.asked == ["/slow"]

    run(test, header_seconds=0.2)


def test_an_answer_that_is_the_last_is_read_by_who_still_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests behind it are thrown away and not left unread; the end comes when the client closes."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 60)

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow?close") + GET)
        await until(lambda: any(one.pipeline for one in where.app.connections))
        writer.write(GET * 30_000)
        await asyncio.sleep(0.05)
        where.app.go.set()
        assert (await answered(reader))[1]["connection"] == "close"
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await until(lambda: not where.app.connections)
        assert where.app.asked == ["/slow"]

    run(test)


def test_nothing_is_read_behind_nonsense() -> None:
    """It is refused once, whatever comes until that can be said."""
    refused = []

    async def test(where: Place) -> None:
        where.server._connections.when_refused = lambda status, _: str(refused.append(status))
        reader, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: where.app.asked == ["/slow"])
        for _ in range(3):
            writer.write(b"nonsense\r\n\r\n")
            await asyncio.sleep(0.02)
        where.app.go.set()
        assert (await answered(reader))[0] == 200
        assert refusal(await asyncio.wait_for(reader.read(), 5))[0] == 400
        assert refused == [400]

    run(test)


def test_nothing_is_said_within_an_answer() -> None:
    """Where a body turns out to be nonsense after its answer has begun, the answer is only cut off."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /begun HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"zz\r\n")
        assert await asyncio.wait_for(reader.read(), 5) == b""

    run(test)


def test_no_more_requests_are_read_than_can_be_answered() -> None:
    """Where many wait already, nothing is read, so that they do not pile up in memory."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        request = GET[:-2] + b"x: " + b"y" * 4000 + b"\r\n\r\n"
        sending = asyncio.create_task(send_all(writer, request, 2000))
        for _ in range(2000):
            assert (await answered(reader))[0] == 200
        await sending
        # a piece is 256 KiB at most
        assert 1 < where.app.waiting < 140

    run(test)


async def send_all(writer: asyncio.StreamWriter, request: bytes, times: int) -> None:
    for _ in range(times // 50):
        writer.write(request * 50)
        await writer.drain()


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


def test_a_piece_full_of_upgrades_is_read() -> None:
    """More of them than functions can be called within each other."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * 1200)
        for _ in range(1200):
            assert (await answered(reader))[0] == 200

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


@pytest.mark.parametrize("behind", [b"", GET])
def test_what_a_client_asked_before_it_left_is_dropped(
    behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The request in hand is abandoned, and what waits behind it is never begun."""

    async def test(where: Place) -> None:
        _, writer = await where.connect()
        writer.write(GET.replace(b"quick", b"gone") + behind)
        await until(lambda: where.app.asked == ["/gone"])
        if behind:
            await until(lambda: any(one.pipeline for one in where.app.connections))
        writer.transport.abort()
        if behind:
            # it is not read from, so that only an answer finds out
            for one in list(where.app.connections):
                one.transport.abort()
        await until(lambda: where.app.abandoned)
        where.app.go.set()
        await asyncio.sleep(0.02)
        assert where.app.asked == ["/gone"]

    run(test)
    assert caplog.records == []


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


def test_a_body_that_arrives_while_draining_has_the_last_answer() -> None:
    """Though a body that was waited for may be followed by more at other times."""

    async def test(where: Place) -> None:
        reader, writer = await where.connect()
        writer.write(b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: where.app.asked == ["/a"])
        last = asyncio.Event()
        last.set()
        ending = asyncio.create_task(where.server.drain(last))
        await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")
        assert (await answered(reader))[1]["connection"] == "close"
        assert await ending == 0

    run(test, drain_seconds=5)


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
