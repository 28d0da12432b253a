"""Answers sent before the request body is complete: clients can read them, and the connection may go on."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from tests.support.echo_server import GET, EchoServer, read_answer, run
from tests.support.tls_certificate import certificate
from turnpike.service.http.connection.request_parser import RequestParser


def test_an_early_response_can_be_read_after_sending_the_body() -> None:
    """A client that first sends its whole body can still read the answer: there is no connection reset."""

    async def test(echo: EchoServer) -> None:
        size = 8_000_000
        reader, writer = await echo.connect()
        writer.write(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        await asyncio.sleep(0.05)
        for _ in range(8):
            writer.write(b"b" * (size // 8))
            await writer.drain()
        assert (await read_answer(reader))[0] == 413
        assert await reader.read() == b""

    run(test)


def test_an_early_response_over_https_can_be_read(tmp_path: Path) -> None:
    """TLS cannot close one direction alone, so the server waits before it closes."""
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False

    async def test(echo: EchoServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", echo.port, ssl=context)
        echo.clients.append(writer)
        writer.write(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n")
        await asyncio.sleep(0.05)
        for _ in range(8):
            writer.write(b"b" * 1_000_000)
            await writer.drain()
        status, headers, _ = await read_answer(reader)
        assert (status, headers["connection"]) == (413, "close")

    run(test, tls_cert=cert, tls_key=key)


def test_a_connection_continues_after_a_small_unread_body() -> None:
    """The rest of a small body is skipped, and the next request is answered."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
        assert (await read_answer(reader))[0] == 413
        writer.write(b"b" * 1000 + GET)
        assert (await read_answer(reader))[0] == 200

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
def test_an_early_response_announces_the_end_of_the_connection(head: bytes, closes: bool) -> None:
    """If the rest of the body may be longer than the server skips, the answer has `connection: close`."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"POST /early HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n\r\n")
        status, headers, _ = await read_answer(reader)
        assert (status, headers.get("connection")) == (413, "close" if closes else None)
        if closes:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        else:
            writer.write(b"b" * (1 << 20) + GET)
            assert (await read_answer(reader))[0] == 200

    run(test)


def test_a_large_body_that_is_read_keeps_the_connection_open() -> None:
    """An answer after the whole body does not close the connection, whatever the size of the body."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        body = b"b" * 1_500_000
        writer.write(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.write(
            b"POST /b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        )
        for path, size in (("/a", len(body)), ("/b", 3)):
            _, headers, answer = await read_answer(reader)
            assert json.loads(answer) == {"path": path, "bytes": size}
            assert "connection" not in headers

    run(test)


def test_an_unread_body_is_skipped_up_to_a_limit() -> None:
    """The server closes the connection after a limited number of bytes."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n")
        assert (await read_answer(reader))[0] == 413
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(pour(writer), 5)

    run(test, header_seconds=0.2, linger_seconds=0.1)


async def pour(writer: asyncio.StreamWriter) -> None:
    """Send without end."""
    while True:
        writer.write(b"b" * 100_000)
        await writer.drain()


def test_an_early_response_to_expect_100_closes_the_connection() -> None:
    """After Expect: 100-continue and an early answer, the next bytes may be a body or a request."""

    async def test(echo: EchoServer) -> None:
        raw = await echo.send_and_read_all(
            b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
        )
        assert raw.startswith(b"HTTP/1.1 413")
        assert b"100 Continue" not in raw

    run(test)


CHUNKED = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_body_in_chunks_is_the_same_in_any_segments(size: int) -> None:
    """Clients may send the header, the data and the end of each chunk on their own."""

    async def test(echo: EchoServer) -> None:
        header, data = b"%x;a=b\r\n" % size, b"\r\n\r" * (size // 3) + b"a" * (size % 3)
        chunk = header + data + b"\r\n"
        for segments in (
            [CHUNKED + chunk + chunk + b"0\r\n\r\n" + GET],
            [CHUNKED, header + data, b"\r\n", header + data, b"\r\n", b"0\r\n\r\n" + GET],
            [CHUNKED, header, data, b"\r\n" + header[:1], header[1:], data, b"\r\n0", b"\r\n\r", b"\n" + GET],
            [
                CHUNKED + header[:-1],
                header[-1:] + data + b"\r",
                b"\n" + chunk + b"0\r\n\r\n" + GET[:9],
                GET[9:],
            ],
        ):
            reader, writer = await echo.connect()
            for segment in segments:
                writer.write(segment)
                await asyncio.sleep(0.002)
            for path, length in (("/a", 2 * size), ("/quick", 0)):
                status, _, answer = await read_answer(reader)
                assert (status, json.loads(answer)) == (200, {"path": path, "bytes": length})

    run(test)


@pytest.mark.parametrize(
    "data", [b"\r\n" * 30_000, b"0\r\n\r\n" * 12_000], ids=["empty lines", "last chunks"]
)
def test_the_data_of_a_chunk_does_not_cut_it_into_pieces(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece costs a call, and 256 KiB may hold 131,072 empty lines."""
    pieces: list[int] = []
    feed = RequestParser.on_body

    def count(parser: RequestParser, body: bytes) -> None:
        pieces.append(len(body))
        feed(parser, body)

    monkeypatch.setattr(RequestParser, "on_body", count)

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) + GET)
        for path, length in (("/a", len(data)), ("/quick", 0)):
            assert json.loads((await read_answer(reader))[2]) == {"path": path, "bytes": length}
        assert sum(pieces) == len(data)
        # a piece for each time that the server reads
        assert len(pieces) < 100

    run(test)


@pytest.mark.parametrize(("version", "continues"), [(b"1.0", False), (b"1.1", True)])
def test_only_http_1_1_gets_100_continue(version: bytes, continues: bool) -> None:
    """A client of HTTP/1.0 would take it for the answer."""

    async def test(echo: EchoServer) -> None:
        head = b"POST /a HTTP/%b\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n" % version
        reader, writer = await echo.connect()
        writer.write(head + b"expect: 100-continue\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"abc")
        raw = await asyncio.wait_for(reader.read(), 5)
        assert raw.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") == continues
        assert raw.count(b" 200 OK\r\n") == 1

    run(test)
