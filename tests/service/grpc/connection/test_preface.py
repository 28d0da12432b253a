"""The first bytes of a connection."""

from __future__ import annotations

import pytest

from tests.support.echo_calls import UNARY, Connection, EchoServer, run
from tests.support.h2_client import PREFACE, SETTINGS, frame, settings

HTTP1 = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


def test_a_preface_may_arrive_byte_by_byte() -> None:
    """The first call too."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        data = connection.client.start() + connection.client.call(1, UNARY, b"hello")
        for position in range(len(data)):
            connection.send(data[position : position + 1])
        assert (await connection.wait_for(1)).messages == [b"hello"]

    run(scene)


def test_our_settings_come_before_the_first_answer() -> None:
    """Also if the preface and a call are in one segment, and the call is answered at once."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        connection.send(connection.client.start() + connection.client.call(1, UNARY, b"hello"))
        assert connection.client.answers[1].messages == [b"hello"]
        assert connection.client.frames[0] == (SETTINGS, 0)
        assert connection.client.settings == {3: 1024, 4: 1 << 18, 6: 32 * 1024}

    run(scene)


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    "request_", [HTTP1, b"GET / HTTP/1.1\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n"], ids=["POST", "GET", "PUT"]
)
def test_a_client_of_http1_gets_an_answer(step: int, request_: bytes) -> None:
    """It says where HTTP is, however the request is cut into segments."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        for start in range(0, len(request_), step):
            connection.wire.receive(request_[start : start + step])
        assert connection.wire.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"HTTP is on the port of --port" in connection.wire.written
        assert connection.wire.eof_written
        assert server.app.counters.snapshot()["answered"]["unknown"]["unknown"]["400"] == 1

    run(scene)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        PREFACE + frame(6, 0, 0, b"12345678"),
        PREFACE + frame(1, 5, 1, b"\x82") + settings(),
    ],
    ids=["nonsense", "another version", "TLS", "PING first", "HEADERS first"],
)
def test_other_bytes_end_the_connection(step: int, data: bytes) -> None:
    """As soon as they cannot become a preface, and whether more follows or not."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        for start in range(0, len(data), step):
            connection.send(data[start : start + step])
        ((last, error, _),) = connection.client.goaways
        assert (last, error) == (0, "PROTOCOL_ERROR")
        assert connection.wire.eof_written

    run(scene)
