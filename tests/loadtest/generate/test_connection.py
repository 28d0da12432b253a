"""Requests over kept connections: what comes back whole, and what each failure is called."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from loadtest.generate.connection import Connections, NoAnswerError, composed
from tests.support import fake_servers as peers
from tests.support.fake_servers import Given

BODY = {"a": 1}
Script = Callable[[socket.socket, int], None]


@contextlib.contextmanager
def saying(script: Script) -> Iterator[str]:
    """A server that does with each connection what a script says; the number counts connections."""
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
    """Reads what comes first, then says these."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

    return script


def request(url: str, path: str = "/x") -> bytes:
    return composed(url, path, b"{}", {"Content-Type": "application/json"})


def test_a_request_is_whole() -> None:
    """Path after the URL's own, host with its port, length, and no compression."""
    text = composed("http://h:81/base/", "/v2/models/m/infer", b"{}", {"Authorization": "Bearer k"}).decode()
    head, _, data = text.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert first == "POST /base/v2/models/m/infer HTTP/1.1"
    assert {"Host: h:81", "Content-Length: 2", "Accept-Encoding: identity"} <= set(lines)
    assert "Authorization: Bearer k" in lines
    assert data == "{}"


def test_a_connection_is_kept() -> None:
    """One connection carries requests one after another; headers have lower-case names."""
    with peers.serving({"POST /x": Given(BODY, headers={"X-Thing": "1"})}) as peer:
        connections = Connections(peer.url, insecure=False)
        sockets = set()
        for _ in range(3):
            answer = connections.post(request(peer.url))
            assert (answer.status, answer.data, answer.headers["x-thing"]) == (200, b'{"a": 1}', "1")
            sockets |= {idle.fileno() for idle in connections._idle}
        connections.keep(0)
    assert len(sockets) == 1


def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    """The next request goes over a new one, and is no fault."""

    def script(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with saying(script) as url:
        connections = Connections(url, insecure=False)
        for number in range(3):
            closed = threading.Event()
            assert connections.post(request(url)).data == b"%d" % number
            assert closed.wait(10)
        connections.keep(0)


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (CHUNKS, 1),
        ((b"HTTP/1.0 200 OK\r\n\r\nab", b"c"), 0),
        ((b"HTTP/1.1 200 OK\r\nCont", b"ent-Length: 3\r\nConnection: close\r\n\r\na", b"bc"), 0),
    ],
    ids=["chunks", "until the end", "in pieces"],
)
def test_every_form_of_a_body(parts: tuple[bytes, ...], kept: int) -> None:
    """Bodies in chunks, without a length, and in pieces come whole; what is to close is not kept."""
    with saying(answering(*parts)) as url:
        connections = Connections(url, insecure=False)
        assert connections.post(request(url)).data == b"abc"
        assert len(connections._idle) == kept
        connections.keep(0)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Le",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",), "connection lost"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",), "connection lost"),
        ((b"SSH-2.0-OpenSSH_9.2p1\r\n",), "the answer is not HTTP"),
    ],
)
def test_an_answer_that_ends_too_early(parts: tuple[bytes, ...], words: str) -> None:
    """It is a fault, never a short body; and the connection is not used again."""
    with saying(answering(*parts)) as url:
        connections = Connections(url, insecure=False)
        with pytest.raises(NoAnswerError, match=words):
            connections.post(request(url))
        assert not connections._idle


def test_no_server_there() -> None:
    """A port where nobody listens is a fault of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}", insecure=False)
    with pytest.raises(NoAnswerError, match="connection refused"):
        connections.post(request(f"http://127.0.0.1:{port}"))


def test_a_redirect_is_what_it_is() -> None:
    """Nobody follows it: an answer with such a status is no answer of a model."""
    with peers.serving({"POST /x": Given(BODY, 307, {"Location": "/y"})}) as peer:
        connections = Connections(peer.url, insecure=False)
        assert connections.post(request(peer.url)).status == 307
        assert [asked.path for asked in peer.asked] == ["/x"]
        connections.keep(0)


def test_connections_that_wait() -> None:
    """Opened ahead, they are there when they are needed, and a server that is gone is no error."""
    with peers.serving({"POST /x": Given(BODY)}) as peer:
        connections = Connections(peer.url, insecure=False)
        connections.open(3)
        assert len(connections._idle) == 3
        assert connections.post(request(peer.url)).status == 200
        connections.keep(0)
    connections.open(3)
    assert not connections._idle
