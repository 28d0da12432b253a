"""gRPC over TLS: the protocol that is agreed on, large messages, and clients of HTTP/1.1."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest
import uvloop

from tests.support.echo_calls import LARGE, STREAM, UNARY, EchoCalls
from tests.support.h2_client import H2Client
from tests.support.in_process_worker import until
from tests.support.tls_certificate import certificate
from turnpike.service.config.settings import Settings
from turnpike.service.grpc.connection.protocol import ALPN, grpc_protocols
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server

Test = Callable[[int, EchoCalls], Awaitable[None]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


def run(files: tuple[Path, Path], test: Test, **options: object) -> None:
    """Run a test with the port of a server that echoes, and the application of the server."""

    async def scene() -> None:
        settings = Settings(tls_cert=files[0], tls_key=files[1], drain_wait=0, drain_seconds=1, **options)
        app = EchoCalls(settings)
        listener = listen("127.0.0.1", 0)
        timing = DrainTiming(handshake=0.01, quiet=0.02, step=0.002)
        port = SharedPort(listener, ConnectionCounts(1))
        server = Server(settings, port, 1, app, timing, grpc_protocols, ALPN)
        try:
            await test(listener.getsockname()[1], app)
        finally:
            last = asyncio.Event()
            last.set()
            assert await server.drain(last) == 0
        assert app.counters.in_flight == app.budget.bytes == 0

    uvloop.run(scene())


def context(files: tuple[Path, Path], *protocols: str) -> ssl.SSLContext:
    """That of a client which offers these protocols."""
    made = ssl.create_default_context(cafile=files[0])
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


def test_the_protocol_is_agreed_on(files: tuple[Path, Path]) -> None:
    async def test(port: int, app: EchoCalls) -> None:
        tls = context(files, "http/1.1", "h2")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        client = H2Client()
        writer.write(client.start() + client.call(1, UNARY, b"hello"))
        async with asyncio.timeout(5):
            while not client.answers[1].done:
                client.receive(await reader.read(65_536))
        assert client.answers[1].messages == [b"hello"]
        writer.close()
        await writer.wait_closed()

    run(files, test)


@pytest.mark.parametrize("offered", [("http/1.1",), ("spdy/3", "http/1.1"), ()])
def test_a_client_that_does_not_offer_http2_is_not_served(
    files: tuple[Path, Path], offered: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection ends with the handshake, whatever it sends."""
    caplog.set_level("INFO")

    async def test(port: int, app: EchoCalls) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context(files, *offered))
        client = H2Client()
        writer.write(client.start() + client.call(1, UNARY, b"hello"))
        received = await asyncio.wait_for(reader.read(), 5)
        assert received == b""
        assert app.started == 0
        writer.close()

    run(files, test)
    assert "expected a client of TLS that offers h2 (ALPN)" in caplog.text


def test_a_channel_of_grpcio(files: tuple[Path, Path]) -> None:
    """Messages of several megabytes in both directions, one after the other and in a stream."""

    async def test(port: int, app: EchoCalls) -> None:
        credentials = grpc.ssl_channel_credentials(files[0].read_bytes())
        options = [("grpc.max_receive_message_length", 1 << 26)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            body = bytes(range(256)) * 20_000
            unary = channel.unary_unary(UNARY)
            assert await unary(body, timeout=20) == body
            assert await channel.unary_unary(LARGE)(b"10000000", timeout=20) == bytes(10_000_000)
            stream = channel.stream_stream(STREAM)(timeout=20)
            for size in (0, 1, 100_000, 3_000_000):
                await stream.write(body[:size])
                assert await stream.read() == body[:size]
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF

    run(files, test)


def test_a_client_that_does_not_read_holds_little(files: tuple[Path, Path]) -> None:
    """Over TLS too, an answer that is not read stays in the budget, and not in the transport."""

    async def test(port: int, app: EchoCalls) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context(files, "h2"))
        transport = writer.transport
        transport.pause_reading()
        client = H2Client()
        writer.write(client.start((4, 2**31 - 1)) + client.allow(0, 1 << 30))
        writer.write(client.call(1, LARGE, b"50000000"))
        await until(lambda: app.budget.bytes == 50_000_000)
        await asyncio.sleep(0.1)
        assert app.budget.bytes == 50_000_000
        transport.abort()
        await until(lambda: app.budget.bytes == 0)

    run(files, test)
