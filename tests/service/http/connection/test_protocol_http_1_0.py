"""HTTP/1.0: the connection stays open only if the client asks for it, and the answer says so."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.echo_server import EchoServer, parse_refusal, read_answer, run
from tests.support.in_process_servers import own_server
from tests.support.in_process_worker import InProcessWorker, request
from tests.support.in_process_worker import run as in_worker

KEEP_ALIVE = {"Connection": "keep-alive"}


def get(path: str = "/quick", connection: str = "keep-alive") -> bytes:
    return f"GET {path} HTTP/1.0\r\nConnection: {connection}\r\n\r\n".encode()


def test_a_connection_has_one_request_by_default() -> None:
    async def test(echo: EchoServer) -> None:
        raw = await echo.send_and_read_all(b"GET /quick HTTP/1.0\r\n\r\n")
        assert raw.startswith(b"HTTP/1.1 200")
        assert b"\r\nconnection: close\r\n" in raw

    run(test)


def test_a_connection_is_kept_if_the_client_asks() -> None:
    """As `ab -k` does. The second request with the same head comes from the cache of heads."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        post = b"POST /p HTTP/1.0\r\nconnection: Keep-Alive\r\ncontent-length: 3\r\n\r\nabc"
        for data in (get(), get(), post, get("/early"), get()):
            writer.write(data)
            _, headers, _ = await read_answer(reader)
            assert headers["connection"] == "keep-alive"
        writer.write(b"GET /quick HTTP/1.0\r\n\r\n")
        assert (await read_answer(reader))[1]["connection"] == "close"
        assert await asyncio.wait_for(reader.read(), 5) == b""

    run(test)


@pytest.mark.parametrize("connection", ["close", "keep-alive, close", "Close,keep-alive", "other"])
def test_other_options_do_not_keep_it(connection: str) -> None:
    async def test(echo: EchoServer) -> None:
        assert b"\r\nconnection: close\r\n" in await echo.send_and_read_all(get(connection=connection))

    run(test)


def test_an_answer_that_ends_the_connection_says_so() -> None:
    """One of unknown length, one that says so itself, and one to a malformed request."""

    async def test(echo: EchoServer) -> None:
        echo.app.release.set()
        for path in ("/begun", "/quick?close"):
            raw = await echo.send_and_read_all(get(path))
            assert b"\r\nconnection: close\r\n" in raw
            assert b"keep-alive" not in raw
        raw = await echo.send_and_read_all(get() + b"nonsense\r\n\r\n")
        answers = raw.split(b"HTTP/1.1 ")
        assert b"keep-alive" in answers[1]
        assert parse_refusal(b"HTTP/1.1 " + answers[2])[0] == 400

    run(test)


def test_answers_and_errors_of_the_service_keep_it() -> None:
    """An answer that does not wait for a long body ends it."""

    async def scene(worker: InProcessWorker) -> None:
        async with own_server(worker) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for path, status in (("/v2", 200), ("/v2/models/other", 404)):
                writer.write(get(path))
                found, headers, _ = await read_answer(reader)
                assert (found, headers["connection"]) == (status, "keep-alive")
            head = request(headers={**KEEP_ALIVE, "Content-Length": 1 << 30}, version="1.0")
            writer.write(head.replace(b"Content-Length: 0\r\n", b""))
            status, headers, _ = await read_answer(reader)
            assert (status, headers["connection"]) == (413, "close")
            writer.close()

    in_worker(scene)
