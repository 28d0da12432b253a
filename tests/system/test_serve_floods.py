"""Floods of large requests with a real server: other clients are answered, and memory is free afterwards."""

from __future__ import annotations

import contextlib
import socket
import threading
import zlib
from collections.abc import Iterator

import pytest

from tests.support.digit_requests import INFER_PATH
from tests.support.live_server import Server, serving, worker_processes
from tests.support.waiting import wait_until

MIB = 1 << 20
ROW = {"instances": [[0] * 64]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model, with a worker that decompresses bombs completely."""
    with serving("--max-inflate-ratio", 2000) as one:
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
