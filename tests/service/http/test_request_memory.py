"""The memory of a worker after many requests."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import uvloop

from tests.support.gates_client import profile_of
from tests.support.in_process_worker import NoSupervisor
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.api.app import Application
from turnpike.service.batching import batcher as pace
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server
from turnpike.service.repository.deployment import Deployment
from turnpike.service.telemetry.log_writer import log_writer

# enough that one object left behind by each request of a round is noticed
REQUESTS_PER_ROUND = 200

ROW = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)
DATA = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
AS_JSON = orjson.dumps({"inputs": [DATA | {"data": ROW.ravel().tolist()}]})
HEAD = orjson.dumps(
    {
        "inputs": [DATA | {"parameters": {"binary_data_size": ROW.nbytes}}],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }
)


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST /v2/models/net/{path} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


REQUEST = {
    "JSON": post("infer", AS_JSON, "Content-Type: application/json"),
    "binary": post("infer", HEAD + ROW.tobytes(), f"Inference-Header-Content-Length: {len(HEAD)}"),
    "gates": post("gates", AS_JSON, "Content-Type: application/json"),
}


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[int]:
    """The port of a worker's whole application, which serves a small network with a gate profile."""
    gated = highway()
    rows = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    profile = profile_of(gated.gates, gated.gate_values(rows))
    file = put_model(folder, data=with_manifest(gated, profile=profile))
    settings: dict[str, Any] = {"models": folder, "drain_wait": 0}
    app = Application(Settings(**settings), NoSupervisor())
    deployment = Deployment(serial=1, models={"net": (file,)})
    assert (await app.registry.prepare(deployment.to_json()))["failed"] == []
    await app.registry.commit(deployment.to_json())
    listener = listen("127.0.0.1", 0)
    server = Server(
        app.context.settings,
        SharedPort(listener, ConnectionCounts(1)),
        1,
        app,
        DrainTiming(handshake=0.02, quiet=0.05),
    )
    try:
        yield listener.getsockname()[1]
    finally:
        last = asyncio.Event()
        last.set()
        await server.drain(last)


def ask(connection: socket.socket, request: bytes, times: int) -> None:
    """Send one request after the other; each must be answered with 200."""
    with connection.makefile("rb") as reader:
        for _ in range(times):
            connection.sendall(request)
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            assert len(reader.read(length)) == length


@pytest.fixture(autouse=True)
def runs_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all runs count as short, so that they stay in the event loop's thread on slow machines too."""
    monkeypatch.setattr(pace, "SHORT_RUN_NS", 10**12)


@pytest.fixture(autouse=True)
def lines_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Log lines would hide failures in the output of the tests."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr(log_writer, "descriptor", descriptor)
    yield
    log_writer.flush()
    os.close(descriptor)


@pytest.mark.parametrize("kind", REQUEST)
def test_requests_do_not_leak_memory(kind: str, tmp_path: Path) -> None:
    """The number of allocated blocks grows by less than one per request."""

    async def scene() -> list[int]:
        blocks = []
        async with worker(tmp_path) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for _ in range(4):
                    await asyncio.to_thread(ask, connection, REQUEST[kind], REQUESTS_PER_ROUND)
                    log_writer.flush()
                    gc.collect()
                    blocks.append(sys.getallocatedblocks())
        return [after - before for before, after in pairwise(blocks)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # one-off allocations, such as a histogram bucket for a new duration, do not happen in all rounds
        assert min(runner.run(scene())) < REQUESTS_PER_ROUND / 2
