"""A worker that has answered more requests holds no more objects."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import uvloop

from service.api.app import create_app
from service.batching import batcher as pace
from service.config.settings import Settings
from service.http.listener import ConnectionCounts, listen
from service.http.server import DrainTiming, Server
from service.repository.deployment import Deployment
from service.telemetry import log
from tests.support.gates_app import profile_of
from tests.support.in_process_worker import NoSupervisor
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put, sealed

# requests in a round: one object left behind by each would be seen
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
    lines = [f"POST /v2/models/net/{path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


REQUEST = {
    "JSON": post("infer", AS_JSON, "Content-Type: application/json"),
    "binary": post("infer", HEAD + ROW.tobytes(), f"Inference-Header-Content-Length: {len(HEAD)}"),
    "gates": post("gates", AS_JSON, "Content-Type: application/json"),
}


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[int]:
    """The port of a whole worker's application, which serves a small network with all that files have."""
    gated = highway()
    rows = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    profile = profile_of(gated.gates, gated.gate_values(rows))
    found = put(folder, data=sealed(gated, profile=profile))
    settings: dict[str, Any] = {"models": folder, "drain_wait": 0}
    app = create_app(Settings(**settings), NoSupervisor())
    plan = Deployment(serial=1, models={"net": (found,)})
    assert (await app.registry.prepare(plan.to_json()))["failed"] == []
    await app.registry.commit(plan.to_json())
    listener = listen("127.0.0.1", 0)
    server = Server(
        app.context.settings, listener, ConnectionCounts(1), 1, app, DrainTiming(handshake=0.02, quiet=0.05)
    )
    try:
        yield listener.getsockname()[1]
    finally:
        last = asyncio.Event()
        last.set()
        await server.drain(last)


def ask(connection: socket.socket, request: bytes, times: int) -> None:
    """One request after the other, each answered with 200."""
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
    """However slow the machine is: in a thread they would not be counted."""
    monkeypatch.setattr(pace, "SHORT_RUN_NS", 10**12)


@pytest.fixture(autouse=True)
def lines_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made, and written to none: a failure would be lost among them."""
    monkeypatch.setattr(log, "write", lambda piece: None)


@pytest.mark.parametrize("kind", REQUEST)
def test_nothing_stays_of_a_request(kind: str, tmp_path: Path) -> None:
    """A worker that has answered more requests holds no more objects."""

    async def scene() -> list[int]:
        held = []
        async with worker(tmp_path) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for _ in range(4):
                    await asyncio.to_thread(ask, connection, REQUEST[kind], REQUESTS_PER_ROUND)
                    log.access_log.flush()
                    gc.collect()
                    held.append(sys.getallocatedblocks())
        return [after - before for before, after in pairwise(held)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # what is made once for a time that no request took before is made in one of the rounds
        assert min(runner.run(scene())) < REQUESTS_PER_ROUND / 2
