"""A worker in this process that serves gRPC on a real port, and a client of grpcio for it.

The client's messages are those of the service: its classes are found by the full name of a method.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc.aio
import numpy as np

from tests.support.fake_request import FakeRequest
from tests.support.in_process_worker import ACCESS_LOG, MODEL_FILE, NAME, NoSupervisor
from turnpike.service.api import app
from turnpike.service.api.context import SupervisorClient
from turnpike.service.config.settings import Settings
from turnpike.service.grpc.application import GrpcApplication
from turnpike.service.grpc.connection.protocol import grpc_protocols
from turnpike.service.grpc.messages.descriptors import POOL, message_class
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server
from turnpike.service.registry.hooks import Hooks
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile, file_identity

INFERENCE = "inference.GRPCInferenceService"


class GrpcWorker:
    """The application, its server, and a channel to it."""

    def __init__(self, application: GrpcApplication, server: Server, port: int) -> None:
        self.app, self.server, self.port = application, server, port
        self._drained: int | None = None
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def drain(self) -> int:
        """End the server as all workers do together; returns how many calls were cut off."""
        if self._drained is None:
            last = asyncio.Event()
            last.set()
            self._drained = await self.server.drain(last)
        return self._drained

    def method(self, service: str, name: str) -> Callable[..., Any]:
        """The multi-callable of a method, unary or with streams as its .proto file says."""
        descriptor = POOL.FindMethodByName(f"{service}.{name}")
        kind = "_".join(
            "stream" if streams else "unary"
            for streams in (descriptor.client_streaming, descriptor.server_streaming)
        )
        made: Callable[..., Any] = getattr(self.channel, kind)(
            f"/{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(descriptor.output_type.full_name).FromString,
        )
        return made

    async def call(self, service: str, method: str, /, *, metadata: Any = None, **fields: Any) -> Any:
        """Call a method of one message, which has these fields."""
        message = message_class(POOL.FindMethodByName(f"{service}.{method}").input_type.full_name)(**fields)
        return await self.method(service, method)(message, metadata=metadata, timeout=20)

    async def http(self, method: str, path: str, body: bytes = b"") -> Any:
        """What the route of HTTP answers, which must be 200 and JSON."""
        request = FakeRequest(method, path, body, content_length=len(body))
        await self.app.handle(request)
        response = request.response
        assert response is not None
        assert response.status == 200, response.body
        return json.loads(response.body)

    async def refused(self, calling: Awaitable[Any]) -> tuple[str, str]:
        """Code and message of a call that is refused."""
        try:
            await calling
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        raise AssertionError("expected an error, got an answer")


def infer_request(rows: Any, *, name: str = NAME, request_id: str = "", outputs: Iterable[str] = ()) -> Any:
    """A ModelInferRequest with these rows as raw bytes."""
    rows = np.asarray(rows, np.float32)
    message = message_class("inference.ModelInferRequest")(model_name=name, id=request_id)
    message.inputs.add(name="x", datatype="FP32", shape=rows.shape)
    message.raw_input_contents.append(rows.tobytes())
    for output in outputs:
        message.outputs.add(name=output)
    return message


@contextlib.asynccontextmanager
async def grpc_worker(
    supervisor: SupervisorClient | None = None,
    name: str = NAME,
    path: Path = MODEL_FILE,
    hooks: Mapping[str, Hooks] | None = None,
    **settings: Any,
) -> AsyncIterator[GrpcWorker]:
    """A worker with a model, by default the bundled one. At the end it drains, and must hold nothing."""
    options = Settings(threads=1, grpc_port=0, drain_wait=0, drain_seconds=1, **settings)
    with patch.object(app, "access_log", ACCESS_LOG):
        application = GrpcApplication(options, supervisor or NoSupervisor(), hooks)
    file = ModelFile(name, 1, path, file_identity(path.stat()))
    assert not (await application.registry.commit(Deployment(1, {name: (file,)}).to_json()))["failed"]
    listener = listen("127.0.0.1", 0)
    timing = DrainTiming(handshake=0.01, quiet=0.02, step=0.002)
    server = Server(
        options,
        SharedPort(listener, ConnectionCounts(1)),
        1,
        application.grpc,
        timing,
        protocols=grpc_protocols,
    )
    worker = GrpcWorker(application, server, listener.getsockname()[1])
    try:
        yield worker
        await worker.channel.close()
        application.draining = True
        assert await worker.drain() == 0
    finally:
        listener.close()
    assert application.context.budget.bytes == 0
    assert application.context.counters.in_flight == 0
