"""What a request costs, counted and not timed: instructions of Python, calls of C, and what stays behind.

A request goes over a socket to a whole worker in this process, with everything on that is on by default.
Where a limit is passed, look at what was added on the way of every request; if it is worth its price, set
COUNTED to what the failure says. It fails as well where a request has become so much cheaper that the limit
would see nothing: set it then, too.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np
import orjson
import pytest
import uvloop

from service.api.app import create_app
from service.batching import batcher as pace
from service.config.settings import Settings
from service.http import server as servers
from service.http.listener import ConnectionCounts, listen
from service.http.server import Server
from service.repository.deployment import Deployment
from service.telemetry import log
from service.telemetry.counters import RequestCounters
from tests.support.gates_app import profile_of
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put, sealed

REQUESTS = 30
# requests after which one object of each would be seen
STAYING = 200
# instructions of Python 3.11 and calls of C functions for one request
COUNTED = {"JSON": (3121, 105), "binary": (3065, 107), "gates": (4675, 172)}
# instructions above it that nobody minds; one more call of anything takes more
ROOM = 2
# of what was counted, how much may have been saved
SAVED = 0.02

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


class Nobody:
    """A control that knows no other workers."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        raise AssertionError(f"nobody is to be asked for {what}")


@dataclass
class Tally:
    """What this thread does, apart for each request, which begins when a connection has bytes."""

    instructions: list[int] = field(default_factory=lambda: [0])
    calls: list[int] = field(default_factory=lambda: [0])

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.settrace(self._called)
        sys.setprofile(self._profiled)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    @property
    def each(self) -> tuple[float, float]:
        """Of a request in the middle: now and then one has to do with what a worker does each second."""
        return median(self.instructions[1:-1]), median(self.calls[1:-1])

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_name == "data_received":
            self.instructions.append(0)
            self.calls.append(0)
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: object) -> Any:
        self.instructions[-1] += event == "opcode"
        return self._ran

    def _profiled(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls[-1] += event == "c_call"


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[int]:
    """The port of a whole worker's application, which serves a small network with all that files have."""
    gated = highway()
    rows = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    profile = profile_of(gated.gates, gated.gate_values(rows))
    found = put(folder, data=sealed(gated, profile=profile))
    settings: dict[str, Any] = {"models": folder, "drain_wait": 0}
    app = create_app(Settings(**settings), Nobody())
    plan = Deployment(serial=1, models={"net": (found,)})
    assert (await app.shelf.prepare(plan.to_json()))["failed"] == []
    await app.shelf.commit(plan.to_json())
    listener = listen("127.0.0.1", 0)
    server = Server(app.parts.settings, listener, ConnectionCounts(1), 1, app)
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


def counted(folder: Path, request: bytes) -> Tally:
    """A worker's tally over some requests, when it has answered others before."""

    async def scene() -> Tally:
        tally = Tally()
        async with worker(folder) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                await asyncio.to_thread(ask, connection, request, 20)
                with tally.counting():
                    await asyncio.to_thread(ask, connection, request, REQUESTS)
        return tally

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(scene())


@pytest.fixture(autouse=True)
def runs_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: in a thread they would not be counted."""
    monkeypatch.setattr(pace, "SHORT_RUN_NS", 10**12)


@pytest.fixture(autouse=True)
def lines_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made, and written to none: a failure would be lost among them."""
    monkeypatch.setattr(log, "write", lambda piece: None)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "HANDSHAKE_SECONDS", 0.02)
    monkeypatch.setattr(servers, "QUIET_SECONDS", 0.05)


ours = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="instructions are those of Python 3.11")


@ours
@pytest.mark.parametrize("kind", REQUEST)
def test_a_request_costs_what_it_did(kind: str, tmp_path: Path) -> None:
    """No more instructions and calls than were counted, and not many fewer."""
    tally = counted(tmp_path, REQUEST[kind])
    assert len(tally.calls) == REQUESTS + 1
    instructions, calls = tally.each
    usual, usual_calls = COUNTED[kind]
    said = f"{kind}: expected {COUNTED[kind]} instructions and calls, counted {(instructions, calls)}"
    assert usual * (1 - SAVED) <= instructions <= usual + ROOM, said
    assert usual_calls * (1 - SAVED) - 1 <= calls <= usual_calls, said


@ours
def test_one_more_layer_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function around another that only calls it is more than there is room for."""
    usual, _ = counted(tmp_path, REQUEST["JSON"]).each
    answered = RequestCounters.count_response

    def layer(*given: Any) -> None:
        answered(*given)

    monkeypatch.setattr(RequestCounters, "count_response", layer)
    heavier, _ = counted(tmp_path, REQUEST["JSON"]).each
    assert heavier > usual + ROOM


@pytest.mark.parametrize("kind", REQUEST)
def test_nothing_stays_of_a_request(kind: str, tmp_path: Path) -> None:
    """A worker that has answered more requests holds no more objects."""

    async def scene() -> list[int]:
        held = []
        async with worker(tmp_path) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for _ in range(4):
                    await asyncio.to_thread(ask, connection, REQUEST[kind], STAYING)
                    log.access_log.flush()
                    gc.collect()
                    held.append(sys.getallocatedblocks())
        return [after - before for before, after in pairwise(held)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # what is made once for a time that no request took before is made in one of the rounds
        assert min(runner.run(scene())) < STAYING / 2
