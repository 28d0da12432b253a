"""Malformed and unsupported requests: they are refused in JSON, and valid ones beside them are answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.echo_server import GET, EchoServer, parse_rejection, read_answer, run


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
def test_malformed_requests_get_a_json_error(data: bytes) -> None:
    """The connection closes, and an application that has already started is disconnected."""

    async def test(echo: EchoServer) -> None:
        status, error = parse_rejection(await echo.send_and_read_all(data))
        assert status == 400
        assert error == "the request: expected HTTP/1.1, got something else"
        assert echo.app.requested_paths in ([], ["/a"])
        assert echo.app.disconnects == len(echo.app.requested_paths)

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
def test_ambiguous_requests_are_refused(data: bytes, sentence: str) -> None:
    """Other servers might read unsupported versions of HTTP or two Host headers differently."""

    async def test(echo: EchoServer) -> None:
        assert parse_rejection(await echo.send_and_read_all(data)) == (400, sentence)
        assert echo.app.requested_paths == []

    run(test)


def test_http_1_0_is_supported() -> None:
    """HTTP/1.0 has one request per connection."""

    async def test(echo: EchoServer) -> None:
        raw = await echo.send_and_read_all(GET.replace(b"1.1", b"1.0"))
        assert raw.startswith(b"HTTP/1.1 200")

    run(test)


def test_rejected_requests_are_counted_and_have_an_id() -> None:
    """The answer has the id under which it was counted."""
    statuses = []

    def count(status: int) -> str:
        statuses.append(status)
        return f"id-{len(statuses)}"

    async def test(echo: EchoServer) -> None:
        echo.application.count_rejected = count
        raw = await echo.send_and_read_all(b"nonsense\r\n\r\n")
        assert b"\r\nx-request-id: id-1\r\n" in raw.partition(b"\r\n\r\n")[0] + b"\r\n"
        assert statuses == [parse_rejection(raw)[0]]

    run(test)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_head_over_the_limit_gets_431(pieces: int) -> None:
    """The limit is the same in however many segments the head arrives."""

    async def test(echo: EchoServer) -> None:
        for size, fits in ((1500, True), (2500, False)):
            data = b"GET /quick HTTP/1.1\r\nx: " + b"y" * size + b"\r\nconnection: close\r\n\r\n"
            reader, writer = await echo.connect()
            step = len(data) // pieces + 1
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await asyncio.sleep(0.01)
            raw = await asyncio.wait_for(reader.read(), 5)
            if fits:
                assert raw.startswith(b"HTTP/1.1 200")
            else:
                assert parse_rejection(raw) == (431, "the headers: expected at most 2000 bytes, got more")
        assert echo.app.requested_paths == ["/quick"]

    run(test, max_header=2000)


def test_an_endless_head_is_refused_at_the_limit() -> None:
    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"GET /quick HTTP/1.1\r\n")
        for _ in range(100):
            writer.write(b"a-header: of some length\r\n")
            await writer.drain()
        assert (await read_answer(reader))[0] == 431

    run(test, max_header=2000)


@pytest.mark.parametrize("cut", [1, 1010, 20_010])
def test_pipelined_heads_are_measured_separately(cut: int) -> None:
    """Segments may begin and end anywhere."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        data = GET * 1200
        writer.write(data[:cut])
        await asyncio.sleep(0.05)
        writer.write(data[cut:])
        for _ in range(1200):
            assert (await read_answer(reader))[0] == 200

    run(test, max_header=1024)


def test_a_body_does_not_count_in_the_next_head() -> None:
    """The next request may begin in the same piece in which a large body ends."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        post = b"POST /quick HTTP/1.1\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000
        writer.write(post + GET[:10])
        assert (await read_answer(reader))[0] == 200
        writer.write(GET[10:])
        assert (await read_answer(reader))[0] == 200

    run(test, max_header=1024)


def test_an_endless_head_after_a_request_is_refused() -> None:
    """A head that begins in the middle of a piece is measured from the next piece on."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET + b"GET /quick HTTP/1.1\r\nx: ")
        assert (await read_answer(reader))[0] == 200
        for _ in range(100):
            writer.write(b"y" * 25)
            await writer.drain()
        assert (await read_answer(reader))[0] == 431
        assert echo.app.requested_paths == ["/quick"]

    run(test, max_header=2000)


def test_a_body_does_not_count_in_its_own_head() -> None:
    """Head and body arrive in one piece, and the body is far larger than the limit for heads."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        for _ in range(2):
            writer.write(b"POST /quick HTTP/1.1\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000)
            status, _, body = await read_answer(reader)
            assert (status, json.loads(body)["bytes"]) == (200, 9000)

    run(test, max_header=1024)


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_an_upgrade_offer_is_ignored(upgrade: bytes) -> None:
    """The offer of another protocol is ignored: the request, its body and the next request are answered."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        head = (
            b"POST /up HTTP/1.1\r\nconnection: upgrade\r\nupgrade: %b\r\ncontent-length: 5\r\n\r\n" % upgrade
        )
        writer.write(head + b"hello" + head + b"hello")
        writer.write(GET)
        for path, size in (("/up", 5), ("/up", 5), ("/quick", 0)):
            status, _, body = await read_answer(reader)
            assert (status, json.loads(body)) == (200, {"path": path, "bytes": size})

    run(test)


def test_many_pipelined_upgrade_offers_are_answered() -> None:
    """They exceed the recursion limit."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * 1200)
        for _ in range(1200):
            assert (await read_answer(reader))[0] == 200

    run(test)


def test_connect_is_refused() -> None:
    """The target may be a path or an authority."""

    async def test(echo: EchoServer) -> None:
        for target in (b"/a", b"example.org:443"):
            raw = await echo.send_and_read_all(b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            assert parse_rejection(raw)[0] == 400
        assert echo.app.requested_paths == []

    run(test)
