"""Malformed and unsupported requests: they are refused in JSON, and valid ones beside them are answered."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.support.echo_server import (
    GET,
    AsgiApplication,
    EchoServer,
    answer,
    parse_refusal,
    read_answer,
    run,
)
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.malformed import HTTP2_PREFACE, MESSAGES

REQUEST_LINE_ERROR = "the request line: expected a method, a target and HTTP/1.1, with one space between them"
NO_METHOD = "the request line: expected a method such as GET, got something else"
NO_SPACE = "the request line: expected a method and a space, got something else"
BAD_TARGET = "the target: expected a path or a URL in ASCII, got something else"
NO_VERSION = "the request line: expected HTTP/1.1 after the target, got something else"
OTHER_VERSION = "the request: expected HTTP/1.1 or HTTP/1.0, got another version"
NO_CRLF = "the request line: expected CR LF after the version, got something else"
NO_HEADER = "the headers: expected lines such as 'Name: value', got something else"
LF_ALONE = "the headers: expected lines that end in CR LF, got LF alone"
CR_ALONE = "the headers: expected lines that end in CR LF, got CR alone"
FOLDED = "the headers: expected one line for each, got one that goes on in the next line"
CONTROL = "the headers: expected values without control characters, got one"
NO_NUMBER = "Content-Length: expected a whole number, got something else"
ONLY_CHUNKED = "Transfer-Encoding: expected only chunked, got more"
TWO_LENGTHS = "the headers: expected Content-Length or Transfer-Encoding, got both"
NO_SIZE = "the body: expected the size of a chunk in hex, got something else"
NO_END_OF_SIZE = "the body: expected CR LF after the size of a chunk, got something else"
NO_END_OF_DATA = "the body: expected CR LF after the data of a chunk, got something else"
NO_HTTP = "the request: expected valid HTTP/1.1, got something else"

# requests that httptools refuses
MALFORMED = [
    (b"\x16\x03\x01 hello\r\n\r\n", NO_METHOD),
    (b"get /a HTTP/1.1\r\n\r\n", NO_METHOD),
    (b"PLAY /a HTTP/1.1\r\n\r\n", NO_METHOD),
    (b"GET\r\n\r\n", NO_SPACE),
    (b"GET \xff\xff HTTP/1.1\r\nhost: x\r\n\r\n", BAD_TARGET),
    (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", BAD_TARGET),
    (b"GET a HTTP/1.1\r\nhost: x\r\n\r\n", BAD_TARGET),
    (b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", NO_VERSION),
    (b"GET /a HTTP/x.1\r\nhost: x\r\n\r\n", NO_VERSION),
    (b"GET /a HTTP/1-1\r\nhost: x\r\n\r\n", NO_VERSION),
    (b"GET /a HTTP/1.x\r\nhost: x\r\n\r\n", NO_VERSION),
    (b"GET /a HTTP/9.9\r\n\r\n", OTHER_VERSION),
    (b"GET /a HTTP/2.1\r\n\r\n", OTHER_VERSION),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP2_PREFACE),
    (b"GET /a HTTP/1.1\nhost: x\n\n", NO_CRLF),
    (b"GET /a HTTP/1.1\r\n host: x\r\n\r\n", NO_HEADER),
    *(
        (b"GET /a HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n\r\n", error)
        for lines, error in (
            (b"no colon", NO_HEADER),
            (b"a : b", NO_HEADER),
            (b"a: b\r\n\n", NO_HEADER),
            (b"a: b\nc: d", LF_ALONE),
            (b"a: b\rc", CR_ALONE),
            (b"\rc", CR_ALONE),
            (b"a: b\r\n c", FOLDED),
            (b"a: b\0c", CONTROL),
            (b"content-length: -3", NO_NUMBER),
            (b"content-length: 1 2", NO_NUMBER),
            (b"content-length: ", "Content-Length: expected a whole number, got none"),
            (
                b"content-length: " + b"9" * 30,
                "Content-Length: expected a number that fits into 64 bits, got a larger one",
            ),
            (b"content-length: 1\r\ncontent-length: 1", "the headers: expected one Content-Length, got 2"),
            (b"content-length: 3\r\ntransfer-encoding: chunked", TWO_LENGTHS),
            (b"transfer-encoding: chunked\r\ncontent-length: 3", TWO_LENGTHS),
            (b"transfer-encoding: ", "Transfer-Encoding: expected chunked, got none"),
            (b"transfer-encoding: chunked, gzip", ONLY_CHUNKED),
        )
    ),
    *(
        (b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + body, error)
        for body, error in (
            (b"zz\r\n", NO_SIZE),
            (
                b"ffffffffffffffffff\r\na",
                "the body: expected the size of a chunk in 64 bits, got a larger one",
            ),
            (b"5\nhello", NO_END_OF_SIZE),
            (b"5\rhello", NO_END_OF_SIZE),
            (b"5\r\nhello!\r\n", NO_END_OF_DATA),
            (b"5\r\nhello\n", NO_END_OF_DATA),
            (b"5\r\nhello\r!", NO_END_OF_DATA),
            (b"5;\1\r\nhello\r\n", NO_HTTP),
            (b"0\r\nno colon\r\n\r\n", NO_HEADER.replace("headers", "trailers")),
            (b"0\r\na: b\nc: d\r\n\r\n", LF_ALONE.replace("headers", "trailers")),
        )
    ),
]


@pytest.mark.parametrize("way", ["whole", "bytewise"])
def test_malformed_requests_get_a_json_error(way: str) -> None:
    """The connection closes, and an application that has already started is disconnected."""

    async def test(echo: EchoServer) -> None:
        for data, error in MALFORMED:
            reader, writer = await echo.connect()
            for piece in [bytes([byte]) for byte in data] if way == "bytewise" else [data]:
                writer.write(piece)
                await asyncio.sleep(0)
            raw = await asyncio.wait_for(reader.read(), 5)
            assert parse_refusal(raw) == (400, error), data
        assert set(echo.app.requested_paths) == ({"/a"} if way == "bytewise" else set())
        assert echo.app.disconnects == len(echo.app.requested_paths)

    run(test)


def test_every_message_about_malformed_requests_is_tested() -> None:
    """The installed httptools has these errors, so none has changed its text."""
    messages = {message.format(part="headers") for message in MESSAGES.values()}
    assert messages <= {error for _, error in MALFORMED}


def with_lines(*lines: bytes, version: bytes = b"1.1") -> bytes:
    """A request with these headers and a body in chunks."""
    return b"\r\n".join([b"POST /a HTTP/" + version, *lines, b"", b"0", b"", b""])


def invalid_requests() -> list[tuple[bytes, str]]:
    """Requests that httptools accepts or refuses, each with the error that is expected."""
    cases = [
        (b"GET /a\r\n\r\n", "the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/0.9"),
        (b"GET /a HTTP/2.0\r\nhost: x\r\n\r\n", "the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/2.0"),
        (b"GET /a HTTP/1.1\r\n\r\n", "the headers: expected one Host, got none"),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", "the headers: expected one Host, got 2"),
        (b"GET /a HTTP/1.0\r\nHost: x\r\nhost: x\r\n\r\n", "the headers: expected one Host, got 2"),
        (
            b"GET http://user@a/ HTTP/1.1\r\nhost: x\r\n\r\n",
            "the target: expected a path or a URL, got 'http://user@a/'",
        ),
    ]
    for line, error in (
        (b"GET  /a HTTP/1.1", REQUEST_LINE_ERROR),
        (b"GET /a  HTTP/1.1", REQUEST_LINE_ERROR),
        (b"GET /a#part HTTP/1.1", REQUEST_LINE_ERROR),
        (b"GET * HTTP/1.1", REQUEST_LINE_ERROR),
        (b"GET /a RTSP/1.0", REQUEST_LINE_ERROR),
        (b"SOURCE /a ICE/1.0", REQUEST_LINE_ERROR),
        (b"GET\t/a HTTP/1.1", NO_SPACE),
        (b"GET /a\tHTTP/1.1", BAD_TARGET),
        (b" GET /a HTTP/1.1", NO_METHOD),
        (b"GET /a HTTP/1.1 ", NO_CRLF),
    ):
        cases.append((line + b"\r\nhost: x\r\n\r\n", error))
    for host in (b"", b"a b", b"a/b", b"u@a", b"a:b", b"a:123456", b"::1", b"[::1", b"[x]", b"\xff"):
        for version in (b"1.1", b"1.0"):
            data = b"GET /a HTTP/%b\r\nhost: %b\r\n\r\n" % (version, host)
            expected = "Host: expected a name or an address, with or without a port, got "
            cases.append((data, expected + repr(host.decode("latin-1"))))
    chunked = b"transfer-encoding: chunked"
    for lines, error in (
        ([b"transfer-encoding: gzip, chunked"], "Transfer-Encoding: expected chunked, got 'gzip, chunked'"),
        ([b"transfer-encoding: gzip", chunked], "Transfer-Encoding: expected chunked, got 'gzip, chunked'"),
        ([b"transfer-encoding: identity"], "Transfer-Encoding: expected chunked, got 'identity'"),
        ([b"transfer-encoding: chunked, chunked"], ONLY_CHUNKED),
        ([chunked, chunked], ONLY_CHUNKED),
        ([chunked, b"content-length: 5"], TWO_LENGTHS),
        ([b"content-length: 5", chunked], TWO_LENGTHS),
    ):
        cases.append((with_lines(b"host: x", *lines), error))
    error = "Transfer-Encoding: expected none in HTTP/1.0, got one"
    cases.append((with_lines(b"host: x", chunked, version=b"1.0"), error))
    return cases


@pytest.mark.parametrize("way", ["whole", "bytewise", "after a request"])
def test_ambiguous_requests_are_refused(way: str) -> None:
    """Other servers might read them differently, or find another request in them."""

    async def test(echo: EchoServer) -> None:
        answered = 0
        for data, error in invalid_requests():
            reader, writer = await echo.connect()
            if way == "after a request":
                writer.write(GET)
                assert (await read_answer(reader))[0] == 200
                answered += 1
            for piece in [bytes([byte]) for byte in data] if way == "bytewise" else [data]:
                writer.write(piece)
                await asyncio.sleep(0)
            raw = await asyncio.wait_for(reader.read(), 5)
            assert parse_refusal(raw) == (400, error), data
        assert echo.app.requested_paths == ["/quick"] * answered

    run(test)


def test_unusual_valid_requests_are_answered() -> None:
    async def test(echo: EchoServer) -> None:
        hosts = (b"x ", b" a.example:80", b"1.2.3.4", b" [::1]:80", b"a_b-c.d.", b"x:", b"\tx\t")
        for data in (
            b"GET /a HTTP/1.0\r\n\r\n",
            *(b"GET /a HTTP/1.1\r\nHost:%b\r\n\r\n" % host for host in hosts),
            b"GET http://a.example:80/a HTTP/1.1\r\nhost: x\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
            b'GET /a?b=|"{} HTTP/1.1\r\nhost: x\r\n\r\n',
            with_lines(b"host: x", b"Transfer-Encoding: Chunked "),
        ):
            reader, writer = await echo.connect()
            writer.write(data)
            assert (await read_answer(reader))[0] == 200, data

    run(test)


def test_the_host_of_a_url_replaces_the_header() -> None:
    """RFC 9112 asks for this, so that all that read the request agree on its host."""
    hosts = []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        hosts.extend(value for name, value in scope["headers"] if name == b"host")
        await answer(send, 200, b"{}")

    async def test(echo: EchoServer) -> None:
        echo.application.handle = AsgiApplication(record, Settings()).handle
        for target in (b"http://a.example:81", b"HTTPS://a.example:81/b", b"http://a.example:81?c"):
            reader, writer = await echo.connect()
            writer.write(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            assert (await read_answer(reader))[0] == 200
        assert hosts == [b"a.example:81"] * 3

    run(test)


def test_refused_requests_are_counted_and_have_an_id() -> None:
    """The answer has the id under which it was counted."""
    statuses = []

    def count(status: int) -> str:
        statuses.append(status)
        return f"id-{len(statuses)}"

    async def test(echo: EchoServer) -> None:
        echo.application.count_refused = count
        raw = await echo.send_and_read_all(b"nonsense\r\n\r\n")
        assert b"\r\nx-request-id: id-1\r\n" in raw.partition(b"\r\n\r\n")[0] + b"\r\n"
        assert statuses == [parse_refusal(raw)[0]]

    run(test)


def test_a_malformed_request_is_logged_with_the_address_of_its_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The field is a string, as in the lines of other requests."""
    caplog.set_level(logging.INFO)

    async def test(echo: EchoServer) -> None:
        await echo.send_and_read_all(b"nonsense\r\n\r\n")
        (record,) = [record for record in caplog.records if "malformed" in record.message]
        assert vars(record)["client"] == "127.0.0.1"

    run(test)


@pytest.mark.parametrize("pieces", [1, 7, 2001])
def test_a_head_over_the_limit_gets_431(pieces: int) -> None:
    """The limit is the same in however many segments the head arrives. All bytes of the head count."""

    async def test(echo: EchoServer) -> None:
        for size in (2000, 2001):
            head = b"GET /quick HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx:%b y\r\n\r\n"
            data = head % (b" " * (size - len(head) + 2))
            assert len(data) == size
            reader, writer = await echo.connect()
            step = len(data) // pieces + 1 if pieces < len(data) else 1
            for start in range(0, len(data), step):
                writer.write(data[start : start + step])
                await asyncio.sleep(0.01 if pieces < 10 else 0)
            raw = await asyncio.wait_for(reader.read(), 5)
            if size == 2000:
                assert raw.startswith(b"HTTP/1.1 200")
            else:
                assert parse_refusal(raw) == (
                    431,
                    "the request line and headers: expected at most 2000 bytes (--max-header), got more",
                )
        assert echo.app.requested_paths == ["/quick"]

    run(test, max_header=2000)


def test_an_endless_head_is_refused_at_the_limit() -> None:
    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"GET /quick HTTP/1.1\r\nhost: x\r\n")
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
        post = b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000
        writer.write(post + GET[:10])
        assert (await read_answer(reader))[0] == 200
        writer.write(GET[10:])
        assert (await read_answer(reader))[0] == 200

    run(test, max_header=1024)


def test_an_endless_head_after_a_request_is_refused() -> None:
    """A head that begins in the middle of a piece is measured from the next piece on."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET + b"GET /quick HTTP/1.1\r\nhost: x\r\nx: ")
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
            writer.write(b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n" + b"b" * 9000)
            status, _, body = await read_answer(reader)
            assert (status, json.loads(body)["bytes"]) == (200, 9000)

    run(test, max_header=1024)


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_an_upgrade_offer_is_ignored(upgrade: bytes) -> None:
    """The offer of another protocol is ignored: the request, its body and the next request are answered."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        head = (
            b"POST /up HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: %b\r\ncontent-length: 5\r\n\r\n"
            % upgrade
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
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * 1200)
        for _ in range(1200):
            assert (await read_answer(reader))[0] == 200

    run(test)


def test_connect_is_refused() -> None:
    """The target may be a path or an authority."""

    async def test(echo: EchoServer) -> None:
        for target in (b"/a", b"example.org:443"):
            raw = await echo.send_and_read_all(b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
            assert parse_refusal(raw) == (
                400,
                "the method: expected GET, HEAD or POST, got CONNECT, which is for proxies",
            )
        assert echo.app.requested_paths == []

    run(test)
