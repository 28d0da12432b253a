"""Requests over a pool of kept connections: complete answers, and the fault for each kind of failure."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from loadtest.generate.connection import ConnectionPool, NoAnswerError, compose_request
from tests.support import fake_servers
from tests.support.fake_servers import FakeAnswer

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


def answering(*parts: bytes) -> Script:
    """A script that reads a request, then sends these parts."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

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


def test_a_connection_is_reused() -> None:
    with fake_servers.fake_server({"POST /x": FakeAnswer(BODY, headers={"X-Thing": "1"})}) as server:
        pool = ConnectionPool(server.url, insecure=False)
        sockets = set()
        for _ in range(3):
            answer = pool.post(request(server.url))
            assert (answer.status, answer.data, answer.headers["x-thing"]) == (200, b'{"a": 1}', "1")
            sockets |= {idle.fileno() for idle in pool._idle}
        pool.shrink(0)
    assert len(sockets) == 1


def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    """The next request uses a new connection, and is not a fault."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with scripted_server(script) as url:
        pool = ConnectionPool(url, insecure=False)
        for number in range(3):
            closed = threading.Event()
            assert pool.post(request(url)).data == b"%d" % number
            assert closed.wait(10)
        pool.shrink(0)


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (CHUNKS, 1),
        ((b"HTTP/1.0 200 OK\r\n\r\nab", b"c"), 0),
        ((b"HTTP/1.1 200 OK\r\nCont", b"ent-Length: 3\r\nConnection: close\r\n\r\na", b"bc"), 0),
    ],
    ids=["chunks", "until close", "in pieces"],
)
def test_every_framing_of_a_body_is_read(parts: tuple[bytes, ...], kept: int) -> None:
    with scripted_server(answering(*parts)) as url:
        pool = ConnectionPool(url, insecure=False)
        assert pool.post(request(url)).data == b"abc"
        assert len(pool._idle) == kept
        pool.shrink(0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Le",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",), "connection lost"),
        ((b"SSH-2.0-OpenSSH_9.2p1\r\n",), "the answer is not HTTP"),
    ],
)
def test_a_truncated_response_is_a_fault(parts: tuple[bytes, ...], message: str) -> None:
    """It never counts as a short body, and the connection is not used again."""
    with scripted_server(answering(*parts)) as url:
        pool = ConnectionPool(url, insecure=False)
        with pytest.raises(NoAnswerError, match=message):
            pool.post(request(url))
        assert not pool._idle


def test_a_refused_connection_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pool = ConnectionPool(f"http://127.0.0.1:{port}", insecure=False)
    with pytest.raises(NoAnswerError, match="connection refused"):
        pool.post(request(f"http://127.0.0.1:{port}"))


def test_redirects_are_not_followed() -> None:
    """An answer after a redirect would not come from the model."""
    with fake_servers.fake_server({"POST /x": FakeAnswer(BODY, 307, {"Location": "/y"})}) as server:
        pool = ConnectionPool(server.url, insecure=False)
        assert pool.post(request(server.url)).status == 307
        assert [received.path for received in server.requests] == ["/x"]
        pool.shrink(0)


def test_connections_can_be_opened_ahead() -> None:
    with fake_servers.fake_server({"POST /x": FakeAnswer(BODY)}) as server:
        pool = ConnectionPool(server.url, insecure=False)
        pool.open(3)
        assert len(pool._idle) == 3
        assert pool.post(request(server.url)).status == 200
        pool.shrink(0)
    pool.open(3)
    assert not pool._idle
