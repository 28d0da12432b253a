"""The client that posts events to their receiver."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.support.event_receiver import event_receiver
from tests.support.tls_certificate import certificate
from turnpike.service.requests.event_sink import SLICE_BYTES, EventSink, SinkError

LINES = b"Ce-Id: 1\r\n"


def test_messages_are_posted_on_one_connection() -> None:
    """Large ones too, and a receiver that closes idle connections loses nothing."""

    async def scene() -> None:
        async with event_receiver() as receiver:
            sink = EventSink(receiver.url, 5)
            bodies = [b"", b"abc", bytes(2 * SLICE_BYTES + 1)]
            for body in bodies:
                await sink.post(LINES, body)
            assert [event.body for event in receiver.events] == bodies
            assert {event.line for event in receiver.events} == {"POST /events?of=1 HTTP/1.1"}
            assert receiver.events[0].headers["host"] in receiver.url
            assert receiver.connections == 1
            await receiver.hang_up()
            await sink.post(LINES, b"after")
            assert (receiver.events[-1].body, receiver.connections) == (b"after", 2)
            sink.close()

    asyncio.run(scene())


def test_messages_at_a_time_have_a_connection_each() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver:
            sink = EventSink(receiver.url, 5)
            await asyncio.gather(*(sink.post(LINES, b"x") for _ in range(3)))
            assert receiver.connections == 3
            sink.close()

    asyncio.run(scene())


def test_the_time_is_that_of_the_whole_answer() -> None:
    """A receiver that sends a byte now and then does not hold up the sender."""

    async def scene() -> None:
        ended = asyncio.Event()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.01)
            ended.set()

        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        async with server:
            sink = EventSink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 0.1)
            with pytest.raises(SinkError, match="expected an answer within 0.1 seconds, got none"):
                await sink.post(LINES, b"x")
            await asyncio.wait_for(ended.wait(), 5)

    asyncio.run(scene())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    ],
)
def test_answers_of_every_form_are_understood(answer: bytes) -> None:
    async def scene() -> None:
        async with event_receiver() as receiver:
            receiver.answer, receiver.hangs_up = answer, b"close" in answer or b"1.0" in answer
            sink = EventSink(receiver.url, 5)
            for _ in range(2):
                await sink.post(LINES, b"x")
            assert receiver.connections == (2 if receiver.hangs_up else 1)
            sink.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "message", "is_down"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "expected a status of 2xx, got 503", True),
        (b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", "expected a status of 2xx, got 400", False),
        (b"HTTP/1.1 301 No\r\nContent-Length: 0\r\n\r\n", "expected a status of 2xx, got 301", False),
        (b"SSH-2.0\r\n\r\n", "Expected HTTP/", True),
        (b"", "closed before the answer", True),
    ],
)
def test_other_answers_are_errors(answer: bytes, message: str, is_down: bool) -> None:
    async def scene() -> None:
        async with event_receiver() as receiver:
            receiver.answer, receiver.hangs_up = answer, not answer
            sink = EventSink(receiver.url, 5)
            with pytest.raises(SinkError, match=message) as raised:
                await sink.post(LINES, b"x")
            assert raised.value.is_down == is_down
            sink.close()

    asyncio.run(scene())


def test_a_receiver_that_is_not_there_is_an_error() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver:
            url = receiver.url
        with pytest.raises(SinkError, match="Connect call failed") as raised:
            await EventSink(url, 5).post(LINES, b"x")
        assert raised.value.is_down

    asyncio.run(scene())


@pytest.mark.parametrize("trusted", [True, False])
def test_a_receiver_with_https_needs_a_trusted_certificate(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))

    async def scene() -> None:
        # the server's end of the refused handshake is an error in its event loop
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with event_receiver(context) as receiver:
            sink = EventSink(receiver.url, 5)
            if trusted:
                await sink.post(LINES, bytes(3 * SLICE_BYTES))
                assert len(receiver.events[0].body) == 3 * SLICE_BYTES
            else:
                with pytest.raises(SinkError, match="certificate verify failed"):
                    await sink.post(LINES, b"x")
            sink.close()

    asyncio.run(scene())
