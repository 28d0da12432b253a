"""Requests over a connection that is kept: complete answers, and the fault for each kind of failure."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import gevent
import pytest
from gevent.event import AsyncResult

from tests.support import fake_servers
from tests.support.fake_servers import FakeAnswer
from tests.support.tls_certificate import certificate
from turnpike.loadtest.generate.connection import NoAnswerError, RawAnswer, compose_request
from turnpike.loadtest.generate.known_answer import KnownAnswer
from turnpike.loadtest.generate.server_address import ServerAddress

BODY = {"a": 1}
Script = Callable[[socket.socket, int], None]


@contextlib.contextmanager
def scripted_server(script: Script) -> Iterator[str]:
    """A server that runs a script on each connection; the number counts connections."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                script(connection, number)
            number += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answering(*parts: bytes, pause: float = 0.0) -> Script:
    """A script that reads a request, then sends these parts, and waits a moment before it closes."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)

    return script


def request(url: str, path: str = "/x") -> bytes:
    return compose_request(url, path, b"{}", {"Content-Type": "application/json"})


def test_a_request_is_composed_as_http() -> None:
    text = compose_request(
        "http://h:81/base/", "/v2/models/m/infer", b"{}", {"Authorization": "Bearer k"}
    ).decode()
    head, _, data = text.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert first == "POST /base/v2/models/m/infer HTTP/1.1"
    assert {"Host: h:81", "Content-Length: 2", "Accept-Encoding: identity"} <= set(lines)
    assert "Authorization: Bearer k" in lines
    assert data == "{}"


class Exchanges:
    """Sends requests over one connection, and waits for each outcome."""

    def __init__(self, url: str, insecure: bool = False) -> None:
        self.connection = ServerAddress(url, insecure).connect()
        self._ended: AsyncResult[int | RawAnswer | NoAnswerError] = AsyncResult()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def post(self, data: bytes, known: KnownAnswer | None = None) -> int | RawAnswer | NoAnswerError:
        self._ended = AsyncResult()
        self.connection.send(data, known, lambda connection, outcome: self._ended.set(outcome))
        return self._ended.get(timeout=20)

    def post_unknown(self, data: bytes) -> RawAnswer:
        """The same for an answer that has to be parsed."""
        outcome = self.post(data)
        assert isinstance(outcome, RawAnswer), outcome
        return outcome


def test_a_connection_is_reused() -> None:
    with (
        fake_servers.fake_server({"POST /x": FakeAnswer(BODY, headers={"X-Thing": "1"})}) as server,
        Exchanges(server.url) as exchanges,
    ):
        for _ in range(3):
            answer = exchanges.post_unknown(request(server.url))
            assert (answer.status, answer.data, answer.headers["x-thing"]) == (200, b'{"a": 1}', "1")
            assert exchanges.connection.usable


def test_an_idle_connection_that_the_server_closes_is_not_usable() -> None:
    """The next request uses a new connection, and is not a fault."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    with scripted_server(script) as url:
        for number in range(3):
            with Exchanges(url) as exchanges:
                assert exchanges.post_unknown(request(url)).data == b"%d" % number
                for _ in range(1000):
                    if not exchanges.connection.usable:
                        break
                    gevent.sleep(0.01)
                assert not exchanges.connection.usable


def test_a_known_answer_is_not_parsed() -> None:
    known = KnownAnswer(b'{"a": 1}', None)
    with (
        fake_servers.fake_server({"POST /x": FakeAnswer(BODY)}) as server,
        Exchanges(server.url) as exchanges,
    ):
        whole = exchanges.post_unknown(request(server.url))
        assert whole.whole
        for _ in range(3):
            size = exchanges.post(request(server.url), known)
            assert isinstance(size, int)
            assert size > len(whole.data)
            assert exchanges.connection.usable


def test_a_known_answer_in_pieces_is_parsed() -> None:
    parts = (b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 3\r\n\r\na", b"bc")
    with scripted_server(answering(*parts, pause=0.05)) as url, Exchanges(url) as exchanges:
        answer = exchanges.post(request(url), KnownAnswer(b"abc", None))
    assert isinstance(answer, RawAnswer)
    assert (answer.data, answer.whole) == (b"abc", False)


def test_large_requests_are_sent_in_parts() -> None:
    """The socket takes less than the whole request until the server reads it."""
    size = 8 << 20
    received: list[int] = []

    def script(connection: socket.socket, number: int) -> None:
        for _ in range(2):
            time.sleep(0.1)
            total = 0
            while total < len(data):
                total += len(connection.recv(1 << 20))
            received.append(total)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")

    with scripted_server(script) as url:
        data = compose_request(url, "/x", b"a" * size, {})
        with Exchanges(url) as exchanges:
            for _ in range(2):
                assert exchanges.post_unknown(data).data == b"a"
                assert exchanges.connection.usable
    assert received == [len(data)] * 2


def test_an_answer_before_the_end_of_the_request_ends_the_connection() -> None:
    """The rest of the request could not be told from the next request."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(1024)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        ended.wait(20)

    ended = threading.Event()
    with scripted_server(script) as url, Exchanges(url) as exchanges:
        assert exchanges.post_unknown(compose_request(url, "/x", b"a" * (8 << 20), {})).status == 413
        assert not exchanges.connection.usable
        ended.set()


def test_tls_connections_are_reused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    large = {"a": "b" * 200_000}
    with fake_servers.fake_server({"POST /x": FakeAnswer(large)}, context) as server:
        with Exchanges(server.url, insecure=True) as exchanges:
            for _ in range(3):
                data = compose_request(server.url, "/x", b"c" * (4 << 20), {})
                assert len(exchanges.post_unknown(data).data) == 200_009
                assert exchanges.connection.usable
            assert len(server.requests[0].body) == 4 << 20
        with pytest.raises(NoAnswerError, match="no TLS"):
            ServerAddress(server.url, insecure=False).connect()


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (CHUNKS, True),
        ((b"HTTP/1.0 200 OK\r\n\r\nab", b"c"), False),
        ((b"HTTP/1.1 200 OK\r\nCont", b"ent-Length: 3\r\nConnection: close\r\n\r\na", b"bc"), False),
    ],
    ids=["chunks", "until close", "in pieces"],
)
def test_every_framing_of_a_body_is_read(parts: tuple[bytes, ...], kept: bool) -> None:
    with scripted_server(answering(*parts)) as url, Exchanges(url) as exchanges:
        assert exchanges.post_unknown(request(url)).data == b"abc"
        assert exchanges.connection.usable is kept


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Le",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",), "connection lost"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n",), "connection lost"),
        ((b"SSH-2.0-OpenSSH_9.2p1\r\n",), "the answer is not HTTP"),
    ],
)
def test_a_truncated_response_is_a_fault(parts: tuple[bytes, ...], message: str) -> None:
    """It never counts as a short body, and the connection is not used again."""
    with scripted_server(answering(*parts)) as url, Exchanges(url) as exchanges:
        assert str(exchanges.post(request(url), KnownAnswer(b"abc", None))) == message
        assert not exchanges.connection.usable


def test_an_interim_answer_is_skipped() -> None:
    parts = (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    for pause in (0.0, 0.05):
        with scripted_server(answering(*parts, pause=pause)) as url, Exchanges(url) as exchanges:
            answer = exchanges.post_unknown(request(url))
            assert (answer.status, answer.data) == (200, b"abc")


def test_a_refused_connection_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswerError, match="connection refused"):
        ServerAddress(f"http://127.0.0.1:{port}", insecure=False).connect()


def test_redirects_are_not_followed() -> None:
    """An answer after a redirect would not come from the model."""
    with (
        fake_servers.fake_server({"POST /x": FakeAnswer(BODY, 307, {"Location": "/y"})}) as server,
        Exchanges(server.url) as exchanges,
    ):
        assert exchanges.post_unknown(request(server.url)).status == 307
        assert [received.path for received in server.requests] == ["/x"]
