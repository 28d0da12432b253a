"""Floods of large requests with a real server: other clients are answered, and memory is free afterwards."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import grpc
import pytest

from tests.support.digit_requests import INFER_PATH
from tests.support.h2_client import END_HEADERS, END_STREAM, HEADERS, H2Client, frame
from tests.support.live_server import Server, serving, worker_processes
from tests.support.waiting import wait_until

MIB = 1 << 20
ROW = {"instances": [[0] * 64]}
LIVE = "/inference.GRPCInferenceService/ServerLive"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model, with a worker that decompresses bombs completely."""
    with serving("--max-inflate-ratio", 2000, "--grpc-port", 0, "--workers", 1) as one:
        yield one


def resident_mib(server: Server) -> float:
    """The memory of the worker."""
    (worker,) = worker_processes(server)
    return float(worker.memory_info().rss) / MIB


def test_bombs_do_not_stop_other_clients(server: Server) -> None:
    """Each bomb takes 60 ms and more to decompress, in which other requests are answered."""
    bomb = zlib.compress(bytes(32 * MIB), 9)
    statuses: list[int] = []

    def send() -> None:
        answer = server.post(INFER_PATH, bomb, headers={"Content-Encoding": "deflate"})
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    answers = 0
    while any(thread.is_alive() for thread in threads):
        assert server.post("/v1/models/digits-10:predict", ROW).status_code == 200
        answers += 1
    # more JSON than --max-json allows
    assert statuses == [413] * 4
    # without slices, about one for each bomb
    assert answers > 20


def heavy_headers(seed: int) -> bytes:
    """A connection whose 3,000 calls have 800 references to two headers each, in another order each time."""
    draw, client = random.Random(seed), H2Client()
    first = client.head(1, LIVE, ("a", "b"), ("c", "d"), end=True)
    base = client.block(LIVE)
    blocks = (base + bytes(draw.choices((0xBE, 0xBF), k=800)) for _ in range(3000))
    calls = (
        frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 3, block) for number, block in enumerate(blocks)
    )
    return client.start() + first + b"".join(calls)


def test_headers_that_take_long_stop_nobody(server: Server) -> None:
    """Eight clients send headers that a worker decodes in seconds; each is told to calm down."""
    host, _, port = server.grpc_address.rpartition(":")
    (worker,) = worker_processes(server)
    goaways: list[bool] = []

    def attack(data: bytes) -> None:
        with socket.create_connection((host, int(port)), timeout=30) as client:
            received = b""
            with contextlib.suppress(OSError):
                client.sendall(data)
            with contextlib.suppress(OSError):
                while part := client.recv(1 << 16):
                    received += part
            goaways.append(b"expected at most 100 fields" in received)

    attacks = [heavy_headers(seed) for seed in range(8)]
    threads = [threading.Thread(target=attack, args=(data,)) for data in attacks]
    with grpc.insecure_channel(server.grpc_address) as channel:
        is_live = channel.unary_unary(LIVE)
        is_live(b"", timeout=30)
        for thread in threads:
            thread.start()
        slowest = 0.0
        while any(thread.is_alive() for thread in threads):
            start = time.perf_counter()
            is_live(b"", timeout=30)
            slowest = max(slowest, time.perf_counter() - start)
    assert goaways == [True] * 8
    assert worker_processes(server) == [worker]
    # decoding all headers of one client at once takes 4 s
    assert slowest < 2


def test_memory_of_closed_connections_is_returned(server: Server) -> None:
    """Clients send half of a body and leave. The last ones stay: what they hold is behind what is free."""
    host, port = server.url.removeprefix("http://").split(":")
    # glibc maps large blocks one by one, until it has freed one of about this size
    assert server.post(INFER_PATH, bytes(20 * MIB)).status_code == 413
    head = f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n".encode()
    before = resident_mib(server)

    def half_sent_body() -> socket.socket:
        client = socket.create_connection((host, int(port)), timeout=10)
        client.sendall(head)
        client.sendall(b"x" * 200_000)
        return client

    with contextlib.ExitStack() as last:
        with contextlib.ExitStack() as clients:
            for _ in range(800):
                clients.enter_context(half_sent_body())
            wait_until(lambda: resident_mib(server) > before + 120)
            for _ in range(20):
                last.enter_context(half_sent_body())
        wait_until(lambda: resident_mib(server) < before + 80, 10)
        assert server.post("/v1/models/digits-10:predict", ROW).status_code == 200
