"""Memory that a worker holds for its connections: counted until it is free, and freed at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.in_process_servers import own_server
from tests.support.in_process_worker import (
    INFER,
    InProcessWorker,
    binary_infer,
    infer,
    request,
    rows,
    run,
    until,
)
from tests.support.tls_certificate import certificate
from turnpike.service.http.connection.protocol import HttpProtocol
from turnpike.service.http.connection.wire_request import WireRequest

ROWS = 4000
# the answer has all values of these gates, which are several megabytes
GATES = [{"name": f"layer0{layer}.transform_gate", "parameters": {"binary_data": True}} for layer in range(8)]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Cycles of objects are not collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left(kind: type) -> int:
    """The number of objects of this class that exist."""
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.usefixtures("no_collection")
def test_a_closed_connection_leaves_nothing_behind() -> None:
    """A worker collects cycles rarely, and a connection may have held megabytes."""

    async def scene(worker: InProcessWorker) -> None:
        half_sent = request(INFER, b"x" * 100_000)[:-50_000]
        whole = request(INFER, infer(rows(1)))
        async with own_server(worker) as port:
            for data in (b"", whole, half_sent, whole[:20], b"nonsense\r\n\r\n"):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                await until(lambda: left(HttpProtocol) == 1)
                await asyncio.sleep(0.02)
                writer.transport.abort()
                await until(lambda: left(HttpProtocol) == 0)
                assert left(WireRequest) == 0

    run(scene)


@pytest.mark.usefixtures("no_collection")
def test_an_idle_connection_keeps_no_request() -> None:
    """The body and the results of its last request are freed when that is answered."""

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        data = request(INFER, infer(rows(1)))
        # as one segment, and in two
        for pieces in ([data], [data[:-10], data[-10:]]):
            assert (await client.ask(*pieces)).status == 200
            await asyncio.sleep(0)
            assert left(WireRequest) == 0

    run(scene)


def test_a_client_that_leaves_after_a_large_body_is_noticed() -> None:
    """Reading pauses while much of a body waits. It goes on at its end, to notice the close."""
    data = request(INFER, *binary_infer(np.zeros((1000, 1, 8, 8), np.float32)))

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs():
            client = worker.connect()
            client.send(data[:1000], data[1000:])
            await until(lambda: worker.model.batcher._running)
            assert client.wire.pauses == 1
            assert client.wire.reading
            client.disconnect()

    run(scene)


def test_a_compressed_body_is_not_kept() -> None:
    """The run has what was decompressed."""
    data = request(INFER, gzip.compress(infer(rows(1))), {"Content-Encoding": "gzip"})

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs():
            client = worker.connect()
            client.send(data)
            await until(lambda: worker.model.batcher._running)
            (running,) = worker.shared.running
            assert running.complete_body is None
            assert running.budgeted_bytes == len(infer(rows(1))) == worker.app.context.budget.bytes
            client.disconnect()

    run(scene)


def test_results_are_freed_when_their_large_answer_is_written() -> None:
    """Only the answer itself counts in the budget, and only it is held."""
    body, headers = binary_infer(rows(*[1] * 2000), binary_data_output=True)

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        client.wire.before_write = client.connection.pause_writing
        client.send(request(INFER, body, headers))
        await until(lambda: bool(client.wire.writes))
        (running,) = worker.shared.running
        assert running.result.arrays == ()
        assert running.complete_body is None
        assert running.result.run_ns > 0
        assert 0 < worker.app.context.budget.bytes < len(body)
        client.disconnect()

    run(scene)


def test_decoded_arrays_count_instead_of_their_json() -> None:
    """Small numbers in JSON become larger arrays."""
    batch = np.zeros((1000, 1, 8, 8), np.float32)
    body = infer(batch).replace(b"0.0", b"0")

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            client = worker.connect()
            client.send(request(INFER, body))
            await until(lambda: worker.model.batcher._running)
            assert worker.app.context.budget.bytes == batch.nbytes > len(body)
            release.set()
            assert (await client.wait_for_reply()).status == 200

    run(scene)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_unread_answers_are_counted(tls: bool, tmp_path: Path) -> None:
    """Clients on real sockets that read nothing fill the budget; others get 503 until they have closed."""
    files: dict[str, Any] = {}
    context = None
    if tls:
        files["tls_cert"], files["tls_key"] = certificate(tmp_path)
        context = ssl.create_default_context(cafile=files["tls_cert"])
    body, _ = binary_infer(np.zeros((ROWS, 1, 8, 8), np.float32))
    body = body.replace(b'"parameters": {}}', b'"outputs": %b}' % json.dumps(GATES).encode())
    data = request(INFER, body, {"Inference-Header-Content-Length": len(body) - ROWS * 256})

    async def ask(port: int) -> tuple[bytes, socket.socket]:
        """The beginning of an answer, of which nothing more is read."""

        def send() -> tuple[bytes, socket.socket]:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(10)
            client.connect(("127.0.0.1", port))
            if context is not None:
                client = context.wrap_socket(client, server_hostname="127.0.0.1")
            client.sendall(data)
            return client.recv(12), client

        return await asyncio.to_thread(send)

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        async with own_server(worker, **files) as port:
            with contextlib.ExitStack() as clients:
                status = b""
                for _ in range(10):
                    if b"503" in status:
                        break
                    status, client = await ask(port)
                    clients.enter_context(client)
                assert status == b"HTTP/1.1 503"
                assert budget.bytes > budget.capacity / 2
            await until(lambda: budget.bytes == 0)
            status, client = await ask(port)
            assert status == b"HTTP/1.1 200"
            client.close()
            await until(lambda: budget.bytes == 0)

    run(scene, max_body=2 << 20, max_held=16 << 20)
