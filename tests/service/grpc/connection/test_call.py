"""Messages of a call: their limits, their compression, and errors in them."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from tests.support.echo_calls import LARGE, LATE, REFUSE, STREAM, UNARY, EchoServer, run
from tests.support.h2_client import data, message

INVALID, EXHAUSTED, UNIMPLEMENTED = 3, 8, 12
MAX_BODY = 100_000
GZIP = (("grpc-encoding", "gzip"),)


@pytest.mark.parametrize("path", [UNARY, STREAM])
@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 50_000, MAX_BODY])
def test_messages_of_any_size(path: str, size: int) -> None:
    """With frames that are full, and one byte less or more."""
    body = bytes(range(256)) * (size // 256 + 1)

    async def scene(server: EchoServer) -> None:
        connection = server.connect((4, 2**31 - 1))
        connection.send(connection.client.allow(0, 1 << 30), connection.client.call(1, path, body[:size]))
        answer = await connection.wait_for(1)
        await connection.turns()
        assert answer.messages == [body[:size]]
        assert (answer.status, answer.ended, answer.reset) == (0, True, None)
        connection.check_windows()

    run(scene, max_body=MAX_BODY)


@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_a_message_over_the_limit_is_refused_by_its_length(path: str) -> None:
    """Before any byte of it has come."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, path), client.data(1, message(bytes(MAX_BODY + 1))[:5]))
        answer = await connection.wait_for(1)
        assert (answer.status, answer.reset) == (EXHAUSTED, "NO_ERROR")
        assert answer.text == f"body: expected at most {MAX_BODY} bytes (--max-body), got {MAX_BODY + 1}"
        connection.check_windows()

    run(scene, max_body=MAX_BODY)


@pytest.mark.parametrize("step", [1, 50, 1 << 20])
def test_a_small_message_over_the_limit_is_refused(step: int) -> None:
    """With the same words whether all of it is there or a part."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        sent = connection.client.call(1, UNARY, bytes(101))
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
        answer = await connection.wait_for(1)
        assert answer.status == EXHAUSTED
        assert answer.text == "body: expected at most 100 bytes (--max-body), got 101"

    run(scene, max_body=100)


@pytest.mark.parametrize("path", [UNARY, STREAM])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_compressed_messages(path: str, encoding: str) -> None:
    """`identity` comes with a message that is not compressed."""
    body = b"hello " * 20_000

    async def scene(server: EchoServer) -> None:
        connection = server.connect((4, 2**31 - 1))
        client = connection.client
        compressed = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "identity": body}[encoding]
        connection.send(client.allow(0, 1 << 30), client.head(1, path, ("grpc-encoding", encoding)))
        await connection.upload(1, message(compressed, flag=int(encoding != "identity")))
        assert (await connection.wait_for(1)).messages == [body]
        connection.check_windows()

    run(scene)


@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_a_bomb_is_refused(path: str) -> None:
    """By its ratio, long before it has the size of the limit."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        bomb = message(gzip.compress(bytes(50 << 20)), flag=1)
        connection.send(client.head(1, path, *GZIP))
        await connection.upload(1, bomb)
        answer = await connection.wait_for(1)
        assert answer.status == EXHAUSTED
        assert "(--max-inflate-ratio)" in answer.text
        connection.check_windows()

    run(scene, max_inflate_ratio=10)


def test_a_compressed_message_over_the_limit_is_refused() -> None:
    """What counts is its size without compression."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, UNARY, *GZIP))
        await connection.upload(1, message(gzip.compress(bytes(MAX_BODY + 1)), flag=1))
        answer = await connection.wait_for(1)
        assert (answer.status, answer.text) == (
            EXHAUSTED,
            f"body: expected at most {MAX_BODY} bytes (--max-body), got more",
        )

    run(scene, max_body=MAX_BODY)


# the headers and the body of a call, and the status and the text of its error
ERRORS = {
    "no message": ((), b"", INVALID, "body: expected one message, got none"),
    "two messages": ((), message(b"a") * 2, INVALID, "body: expected one message, got another after it"),
    "a part of a length": (
        *((), message(b"a")[:3], INVALID),
        "body: expected a whole message, got only a part of its length",
    ),
    "a part of a message": (
        *((), message(b"hello")[:8], INVALID),
        "body: expected a message of 5 bytes, got 2 fewer",
    ),
    "a byte after the message": (
        *((), message(b"a") + b"\0", INVALID),
        "body: expected a whole message, got only a part of its length",
    ),
    "another flag": (
        *((), message(b"a", flag=2), INVALID),
        "body: expected a message that begins with 0 or 1, got 2",
    ),
    "compressed without an encoding": (
        *((), message(b"a", flag=1), INVALID),
        "body: expected grpc-encoding with a compressed message, got none",
    ),
    "compressed by an unknown encoding": (
        *((("grpc-encoding", "snappy"),), message(b"a", flag=1), UNIMPLEMENTED),
        "grpc-encoding: expected gzip, deflate or identity, got 'snappy'",
    ),
    "a damaged compression": (
        *(GZIP, message(b"abc", flag=1), INVALID),
        "body: expected one whole compressed stream, got a damaged one",
    ),
    "half of a compression": (
        *(GZIP, message(gzip.compress(b"hello")[:-5], flag=1), INVALID),
        "body: expected one whole compressed stream, got a damaged one",
    ),
}


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytes", "whole"])
@pytest.mark.parametrize("case", ERRORS)
def test_errors_in_a_message(case: str, step: int) -> None:
    """The answer is the same however the bytes arrive."""
    headers, body, status, text = ERRORS[case]

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        sent = client.head(1, UNARY, *headers) + client.data(1, body, end=True)
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
            if step == 1:
                await asyncio.sleep(0)
        answer = await connection.wait_for(1)
        assert (answer.status, answer.text) == (status, text)
        connection.check_windows()

    run(scene)


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytes", "whole"])
def test_a_header_of_http_does_not_compress_a_message(step: int) -> None:
    """Content-Encoding has no meaning in gRPC."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        sent = connection.client.call(1, UNARY, b"plain", headers=(("content-encoding", "gzip"),))
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
        assert (await connection.wait_for(1)).messages == [b"plain"]

    run(scene)


def test_an_error_in_a_stream_comes_after_the_answers_before_it() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM), client.data(1, message(b"first") + b"\x02\0\0\0\0"))
        answer = await connection.wait_for(1)
        assert answer.messages == [b"first"]
        assert (answer.status, answer.reset) == (INVALID, "NO_ERROR")

    run(scene)


def test_many_large_messages_stay_within_the_budget() -> None:
    """Those beyond `--max-held` are refused, and may be tried again."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        half = message(bytes(MAX_BODY))[: MAX_BODY // 2]
        for number in range(8):
            stream_id = 2 * number + 1
            connection.send(client.head(stream_id, UNARY))
            for start in range(0, len(half), 16_384):
                connection.send(client.data(stream_id, half[start : start + 16_384]))
            await connection.turns()
        assert server.app.budget.bytes <= 3 * MAX_BODY
        refused = [number for number in range(8) if client.answers[2 * number + 1].done]
        assert len(refused) == 2
        for number in refused:
            answer = client.answers[2 * number + 1]
            assert (answer.status, answer.reset) == (EXHAUSTED, "NO_ERROR")
            # for clients of HTTP, and as the retries of grpcio read it
            assert (answer.headers["retry-after"], answer.headers["grpc-retry-pushback-ms"]) == ("1", "1000")
        connection.wire.close()
        await connection.turns()

    run(scene, max_body=MAX_BODY, max_held=3 * MAX_BODY)


def test_unread_answers_are_limited() -> None:
    """Large answers count in `--max-held` until the client has read them."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        for stream_id in (1, 3, 5, 7):
            connection.send(client.call(stream_id, LARGE, b"%d" % (3 * MAX_BODY // 4)))
            await connection.turns()
        assert client.answers[7].status is None
        connection.send(client.call(9, LARGE, b"%d" % (3 * MAX_BODY // 4)))
        assert (await connection.wait_for(9)).status == EXHAUSTED
        assert "(--max-held)" in client.answers[9].text

    run(scene, max_body=MAX_BODY, max_held=3 * MAX_BODY)


def test_a_stream_is_read_no_faster_than_its_answers() -> None:
    """A client that sends and does not read is stopped by the window."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM))
        sent = 0
        for _ in range(100):
            if client.room(1) < 16_384:
                break
            connection.send(client.data(1, message(bytes(16_379))))
            sent += 1
            await connection.turns()
        # the first window of the client, and one of ours
        assert sent <= (65_535 + (1 << 18)) // 16_384 + 1
        assert server.app.budget.bytes == 0
        connection.send(client.allow(0, 1 << 30), client.allow(1, 1 << 30), client.data(1, end=True))
        assert len((await connection.wait_for(1)).messages) == sent
        connection.check_windows()

    run(scene)


def test_an_error_text_has_a_limit_and_is_printable() -> None:
    """It is a header: a client would refuse a longer one, and the connection with it."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((4, 2**31 - 1))
        text = "é\n%" * 20_000
        connection.send(connection.client.call(1, REFUSE, text.encode()))
        answer = await connection.wait_for(1)
        assert answer.status == INVALID
        assert answer.text == "%C3%A9%0A%25" * 333

    run(scene)


def test_a_request_id_of_any_length_is_sent_back() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        for number, size in enumerate((1, 126, 127, 128)):
            stream_id = 2 * number + 1
            sent = connection.client.call(stream_id, UNARY, b"x", headers=(("x-request-id", "i" * size),))
            connection.send(sent)
            assert (await connection.wait_for(stream_id)).headers["x-request-id"] == "i" * size

    run(scene)


def test_a_late_reader_gets_what_arrived_before() -> None:
    """In several frames, with or without the end of the stream."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, LATE), client.head(3, LATE))
        for stream_id in (1, 3):
            for byte in message(b"hello"):
                connection.send(client.data(stream_id, bytes((byte,))))
        connection.send(client.data(1, end=True))
        server.app.release.set()
        assert (await connection.wait_for(1)).messages == [b"hello"]
        connection.send(data(3, end=True))
        assert (await connection.wait_for(3)).messages == [b"hello"]
        connection.check_windows()

    run(scene)
