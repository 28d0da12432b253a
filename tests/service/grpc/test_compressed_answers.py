"""Answers of gRPC are compressed as the client compresses its requests, if that makes them much smaller."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support.echo_calls import STREAM, UNARY, EchoServer, run
from tests.support.grpc_worker import INFERENCE, GrpcWorker, grpc_worker, infer_request
from tests.support.h2_client import message
from turnpike.service.requests.middleware import COMPRESSED_FROM_BYTES

UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
ACCEPT = ("grpc-accept-encoding", "identity, deflate, gzip")
TEXT = b"hello " * 20_000


async def relayed(worker: GrpcWorker, request: Any, compression: grpc.Compression) -> tuple[Any, int]:
    """The answer that grpcio gets through a relay, and how many bytes the server sent for it."""
    received = 0

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, count: bool) -> None:
        nonlocal received
        while data := await reader.read(1 << 16):
            received += len(data) if count else 0
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", worker.port)
        await asyncio.gather(copy(reader, to_server, count=False), copy(from_server, writer, count=True))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with grpc.aio.insecure_channel(address, compression=compression) as channel:
            worker.channel, direct = channel, worker.channel
            answer = await worker.method(INFERENCE, "ModelInfer")(request)
            worker.channel = direct
    return answer, received


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_grpcio_gets_fewer_bytes_if_it_compresses(compression: grpc.Compression) -> None:
    """Classes are text, which becomes 2.4 times smaller. grpcio accepts gzip in any case."""

    async def scene() -> None:
        rows = np.random.default_rng(0).uniform(0, 16, (512, 1, 8, 8)).astype(np.float32)
        request = infer_request(rows)
        request.outputs.add(name="output").parameters["classification"].int64_param = 10
        async with grpc_worker() as worker:
            plain, plain_bytes = await relayed(worker, request, grpc.Compression.NoCompression)
            packed, packed_bytes = await relayed(worker, request, compression)
        assert packed == plain
        assert plain_bytes > plain.ByteSize()
        assert packed_bytes < plain_bytes / 2

    asyncio.run(scene())


def answer_to(
    path: str, body: bytes, *headers: tuple[str, str], room: int = 1 << 30
) -> tuple[dict[str, str], int, bytes]:
    """The headers, the flag and the message of the answer to one message, which is echoed.

    `room` are the bytes that answers may hold.
    """
    found: list[tuple[dict[str, str], int, bytes]] = []

    async def scene(server: EchoServer) -> None:
        server.app.budget.capacity = room
        connection = server.connect((4, 2**31 - 1))
        client = connection.client
        connection.send(client.allow(0, 1 << 30), client.head(1, path, *headers))
        await connection.upload(1, message(body))
        answer = await connection.wait_for(1)
        assert answer.status == 0
        found.append((answer.headers, answer.body[0], answer.messages[0]))
        connection.check_windows()

    run(scene)
    return found[0]


@pytest.mark.parametrize("path", [UNARY, STREAM])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_the_answer_has_the_encoding_of_the_request(path: str, encoding: str) -> None:
    headers, flag, answer = answer_to(path, TEXT, ("grpc-encoding", encoding), ACCEPT)
    assert (headers["grpc-encoding"], flag) == (encoding, 1)
    assert len(answer) < len(TEXT) / 10
    assert UNPACK[encoding](answer) == TEXT


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (TEXT, [ACCEPT]),
        (TEXT, [("grpc-encoding", "identity"), ACCEPT]),
        (TEXT, [("grpc-encoding", "br"), ("grpc-accept-encoding", "br")]),
        (TEXT, [("grpc-encoding", "gzip")]),
        (TEXT, [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity,deflate")]),
        (TEXT[: COMPRESSED_FROM_BYTES - 1], [("grpc-encoding", "gzip"), ACCEPT]),
        (random.Random(0).randbytes(1 << 16), [("grpc-encoding", "gzip"), ACCEPT]),
    ],
    ids=["not used", "identity", "unknown", "not accepted", "another accepted", "small", "incompressible"],
)
@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_other_answers_are_sent_as_they_are(path: str, body: bytes, headers: list[tuple[str, str]]) -> None:
    _, flag, answer = answer_to(path, body, *headers)
    assert (flag, answer) == (0, body)


def test_without_memory_for_a_copy_an_answer_is_sent_as_it_is() -> None:
    _, flag, answer = answer_to(STREAM, TEXT, ("grpc-encoding", "gzip"), ACCEPT, room=len(TEXT))
    assert (flag, answer) == (0, TEXT)
