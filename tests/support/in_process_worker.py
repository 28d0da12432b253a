"""A worker's application with the bundled model, and connections to it with both ends in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import uvloop

from tests.support.asgi import Reply
from tests.support.live_server import ROOT
from tests.support.recorded_access_log import RecordedAccessLog
from turnpike.service.api import app
from turnpike.service.api.app import Application
from turnpike.service.batching.batcher import RunTimeEstimator
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.protocol import HttpProtocol
from turnpike.service.http.connection.shared_state import SharedState
from turnpike.service.inference_types import Array
from turnpike.service.registry.model import Model
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile, file_identity

NAME = "digits-10"
MODEL_FILE = ROOT / "service/default" / NAME / "1/model.onnx"
INFER = f"/v2/models/{NAME}/infer"
GATES = f"/v2/models/{NAME}/gates"
LESION = f"/v2/models/{NAME}/lesion"
PREDICT = f"/v1/models/{NAME}:predict"

# where all workers of this process write their access log
ACCESS_LOG = RecordedAccessLog()

Scene = Callable[["InProcessWorker"], Awaitable[None]]


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection. Data that arrives while reading is paused waits, as in a socket."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 5555)})
        self.protocol: Any = None
        self.written = bytearray()
        self.writes: list[bytes] = []
        # written after the connection was closed
        self.writes_after_close: list[bytes] = []
        # bytes written that the client has not read yet
        self.unsent = 0
        self.reading, self.pauses = True, 0
        self.eof_written = self.closing = False
        # called before each write; an exception from it prevents the write
        self.before_write: Callable[[], None] = lambda: None
        self._unread: deque[bytes] = deque()

    def receive(self, data: bytes) -> None:
        """Receive data from the client."""
        self._unread.append(data)
        self._deliver()

    def write(self, data: Any) -> None:
        self.before_write()
        if self.closing:
            self.writes_after_close.append(bytes(data))
        else:
            self.writes.append(bytes(data))
            self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.reading, self.pauses = False, self.pauses + 1

    def resume_reading(self) -> None:
        self.reading = True
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        while self._unread and self.reading and not self.closing:
            self.protocol.data_received(self._unread.popleft())


class Client:
    """The client's end of a connection."""

    def __init__(self, connection: HttpProtocol, wire: MemoryTransport) -> None:
        self.connection, self.wire = connection, wire
        self._read = 0

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.wire.receive(piece)

    def disconnect(self) -> None:
        self.wire.close()

    def next_reply(self) -> Reply | None:
        """The next complete response, or None."""
        data = bytes(self.wire.written[self._read :])
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            return None
        status, *lines = head.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = dict(pairs)
        assert len(headers) == len(pairs), "a header was sent twice"
        size = int(headers["content-length"])
        if len(rest) < size:
            return None
        self._read += len(head) + len(separator) + size
        return Reply(int(status.split()[1]), headers, rest[:size])

    async def wait_for_reply(self) -> Reply:
        """Wait for the next response."""
        replies: list[Reply] = []

        def has_reply() -> bool:
            reply = self.next_reply()
            replies.extend([reply] if reply else [])
            return bool(replies)

        await until(has_reply)
        # the request is counted and logged in the next turn
        await asyncio.sleep(0)
        return replies[0]

    async def ask(self, *pieces: bytes) -> Reply:
        """Send these pieces, each in its own turn of the event loop, and wait for the response."""
        for piece in pieces[:-1]:
            self.send(piece)
            await asyncio.sleep(0)
        self.send(pieces[-1])
        return await self.wait_for_reply()


class NoSupervisor:
    """A client of the supervisor that must not be used."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        raise AssertionError(f"expected no request to the supervisor, got {what!r}")


class InProcessWorker:
    """The application, and the state that its connections share."""

    def __init__(self, settings: Settings) -> None:
        with patch.object(app, "access_log", ACCESS_LOG):
            self.app = Application(settings, NoSupervisor())
        self.shared = SharedState()
        self.shared.set_date(b"Sat, 21 Nov 2026 15:24:40 GMT")

    async def load(self) -> None:
        file = ModelFile(NAME, 1, MODEL_FILE, file_identity(MODEL_FILE.stat()))
        assert not (await self.app.registry.commit(Deployment(1, {NAME: (file,)}).to_json()))["failed"]

    @property
    def model(self) -> Model:
        return self.app.registry.find(NAME)

    def connect(self) -> Client:
        wire = MemoryTransport()
        connection = HttpProtocol(self.app, self.shared, asyncio.get_running_loop())
        wire.protocol = connection
        connection.connection_made(wire)
        return Client(connection, wire)

    @contextlib.contextmanager
    def blocked_runs(self) -> Iterator[threading.Event]:
        """Runs of the model block in a thread until the event is set, so that requests wait."""
        with blocked_runs(self.model) as blocked:
            yield blocked.release

    def counts(self) -> dict[str, Any]:
        """The counters, without times."""
        snapshot = self.app.context.counters.snapshot()
        (model,) = [model for versions in snapshot["models"].values() for model in versions.values()]
        return {
            "in_flight": snapshot["in_flight"],
            "held": self.app.context.budget.bytes,
            "answered": snapshot["answered"],
            "timed": {route: sum(histogram["counts"]) for route, histogram in snapshot["seconds"].items()},
            "refused": snapshot["refused"],
            "rows": model["rows"],
            "failed": {reason: count for reason, (count, _) in model["failed"].items()},
            "requests": sum(model["seconds"]["counts"]),
            "sizes": {rows: (size[0], size[2]) for rows, size in model["sizes"].items()},
        }


@dataclass(frozen=True)
class BlockedRuns:
    """Runs that wait for `release`."""

    has_begun: threading.Event
    release: threading.Event


@contextlib.contextmanager
def blocked_runs(model: Model) -> Iterator[BlockedRuns]:
    """Runs of the model block in a thread until they are released."""
    runner, batcher = model.batcher.runner, model.batcher
    blocked = BlockedRuns(threading.Event(), threading.Event())
    run = runner._run

    def wait(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        blocked.has_begun.set()
        assert blocked.release.wait(10)
        return run(feeds, names)

    runner._run, batcher._run_times = wait, RunTimeEstimator()
    try:
        yield blocked
    finally:
        blocked.release.set()
        runner._run = run


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def load_worker(**settings: Any) -> InProcessWorker:
    """An application with these settings and its model, which several scenes can use."""
    worker = InProcessWorker(Settings(threads=1, **settings))
    asyncio.run(worker.load())
    return worker


def run_scene(worker: InProcessWorker, scene: Scene) -> None:
    """Run a scene, and check that no request is left at its end."""

    async def play() -> None:
        try:
            await scene(worker)
            # a route of FastAPI ends in a task, some turns after its answer
            await until(lambda: worker.app.context.counters.in_flight == 0)
            assert worker.app.context.budget.bytes == 0
        finally:
            # a large response would wait for its client for ever
            for connection in list(worker.shared.connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    uvloop.run(play())


def run(scene: Scene, **settings: Any) -> None:
    """Run a scene with an application of its own."""
    run_scene(load_worker(**settings), scene)


@pytest.fixture
def access_log_lines() -> list[dict[str, Any]]:
    """The lines of the access log, without those of earlier tests."""
    ACCESS_LOG.lines.clear()
    return ACCESS_LOG.lines


def request(
    path: str = INFER,
    body: bytes = b"",
    headers: Mapping[str, object] | None = None,
    *,
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def rows(*tags: int) -> Array:
    """Random images, a different one for each tag."""
    images = [np.random.default_rng(tag).integers(0, 17, (1, 8, 8)) for tag in tags]
    return np.array(images, np.float32).reshape(-1, 1, 8, 8)


def infer(batch: Array, **more: Any) -> bytes:
    """The body of an infer request in JSON, with these further fields."""
    tensor = {"name": "x", "shape": batch.shape, "datatype": "FP32", "data": batch.ravel().tolist()}
    return json.dumps({"inputs": [tensor], **more}, separators=(",", ":")).encode()


def binary_infer(images: Array, **parameters: Any) -> tuple[bytes, dict[str, object]]:
    """The body of an infer request whose rows follow its JSON, and the header with the length of the JSON."""
    tensor = {
        "name": "x",
        "shape": images.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": images.nbytes},
    }
    text = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    return text + images.tobytes(), {"Inference-Header-Content-Length": len(text)}


# a request whose response is large
LARGE_BINARY = binary_infer(np.ones((2000, 1, 8, 8), np.float32), binary_data_output=True)
# bytes: a response of this size or more is sent no faster than the client reads it
LARGE_RESPONSE_BYTES = 1 << 16
