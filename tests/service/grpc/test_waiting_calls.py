"""Calls that wait for the run of a model: deadlines, and clients that cancel or leave."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
import uvloop

from tests.support.echo_calls import Connection
from tests.support.grpc_load import digit_request
from tests.support.h2_client import message, reset
from tests.support.in_process_worker import ACCESS_LOG, MODEL_FILE, NAME, NoSupervisor, until
from turnpike.service.api import app
from turnpike.service.batching.batcher import RunTimeEstimator
from turnpike.service.config.settings import Settings
from turnpike.service.grpc.application import GrpcApplication
from turnpike.service.grpc.connection.header_turns import HeaderTurns
from turnpike.service.http.connection.shared_state import SharedState
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile, file_identity

INFER, STREAM = (f"/inference.GRPCInferenceService/{name}" for name in ("ModelInfer", "ModelStreamInfer"))
DEADLINE_EXCEEDED = 4
MESSAGE = digit_request().SerializeToString()


class Worker:
    """The application with its model, and its connections without sockets."""

    def __init__(self) -> None:
        with patch.object(app, "access_log", ACCESS_LOG):
            self.application = GrpcApplication(Settings(threads=1, grpc_port=0), NoSupervisor())
        self.app = self.application.grpc
        self.shared = SharedState()
        self.turns = HeaderTurns()

    async def load(self) -> None:
        file = ModelFile(NAME, 1, MODEL_FILE, file_identity(MODEL_FILE.stat()))
        deployment = Deployment(1, {NAME: (file,)}).to_json()
        assert not (await self.application.registry.commit(deployment))["failed"]
        self.batcher = self.application.registry.find(NAME).batcher

    def connect(self) -> Connection:
        connection = Connection(self)
        connection.send(connection.client.start())
        return connection

    @contextlib.contextmanager
    def blocked_run(self) -> Iterator[threading.Event]:
        """Runs of the model wait in a thread for the event, so that further calls stay in the queue."""
        runner, release = self.batcher.runner, threading.Event()
        run = runner._run

        def wait(feeds: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
            assert release.wait(10)
            return run(feeds, names)

        runner._run, self.batcher._run_times = wait, RunTimeEstimator()
        try:
            yield release
        finally:
            release.set()
            runner._run = run


def run(scene: Callable[[Worker], Awaitable[None]]) -> None:
    """Run a scene with a worker, which must hold nothing at the end."""

    async def play() -> None:
        worker = Worker()
        await worker.load()
        await scene(worker)
        context = worker.application.context
        await until(lambda: not (context.counters.in_flight or worker.shared.running))
        assert context.budget.bytes == 0
        for connection in list(worker.shared.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    ACCESS_LOG.lines.clear()
    uvloop.run(play())


def statuses() -> list[int]:
    return [line["status"] for line in ACCESS_LOG.lines]


def test_a_call_whose_deadline_passes_in_the_queue_is_not_run() -> None:
    """It is answered at its deadline, and not after the run before it."""

    async def scene(worker: Worker) -> None:
        connection = worker.connect()
        client = connection.client
        with worker.blocked_run() as release:
            connection.send(client.call(1, INFER, MESSAGE))
            await until(lambda: worker.batcher._running)
            connection.send(client.call(3, INFER, MESSAGE, headers=(("grpc-timeout", "20m"),)))
            await until(lambda: worker.batcher.waiting == 1)
            answer = await connection.wait_for(3)
            assert answer.status == DEADLINE_EXCEEDED
            assert not client.answers[1].done
            assert worker.batcher.waiting == 0
            release.set()
            assert (await connection.wait_for(1)).status == 0
        await connection.turns()
        assert statuses() == [504, 200]

    run(scene)


@pytest.mark.parametrize("path", [INFER, STREAM])
@pytest.mark.parametrize("leaves", [False, True], ids=["cancels", "leaves"])
def test_a_call_whose_client_has_gone_leaves_the_queue(path: str, leaves: bool) -> None:
    """The run that is under way is finished for the others."""

    async def scene(worker: Worker) -> None:
        other, connection = worker.connect(), worker.connect()
        with worker.blocked_run() as release:
            other.send(other.client.call(1, INFER, MESSAGE))
            await until(lambda: worker.batcher._running)
            connection.send(
                connection.client.call(1, path, MESSAGE), connection.client.call(3, path, MESSAGE)
            )
            await until(lambda: worker.batcher.waiting == 2)
            if leaves:
                connection.wire.close()
            else:
                connection.send(reset(1))
            await until(lambda: worker.batcher.waiting == (0 if leaves else 1))
            release.set()
            assert (await other.wait_for(1)).status == 0
            if not leaves:
                assert (await connection.wait_for(3)).status == 0
                connection.check_windows()
        await other.turns()
        await until(lambda: statuses().count(499) >= 1 + leaves)

    run(scene)


def test_a_call_whose_client_cancels_during_its_run_is_answered_to_nobody() -> None:
    async def scene(worker: Worker) -> None:
        connection = worker.connect()
        with worker.blocked_run() as release:
            connection.send(connection.client.call(1, INFER, MESSAGE))
            await until(lambda: worker.batcher._running)
            connection.send(reset(1))
            release.set()
            connection.send(connection.client.call(3, INFER, MESSAGE))
            assert (await connection.wait_for(3)).status == 0
        assert connection.client.answers[1].headers == {}
        connection.check_windows()

    run(scene)


@pytest.mark.parametrize("turns", range(4))
def test_nothing_follows_the_end_of_a_stream(turns: int) -> None:
    """It ends while an answer waits until the client has read others, some turns before it has."""

    async def scene(worker: Worker) -> None:
        connection = worker.connect()
        client = connection.client
        with worker.blocked_run() as release:
            connection.send(client.head(1, STREAM), client.data(1, message(MESSAGE)))
            await until(lambda: worker.batcher._running)
            connection.protocol.pause_writing()
            release.set()
            await until(lambda: bool(connection.protocol.blocked))
        (call,) = worker.shared.running
        call.cut_off()
        await connection.turns(turns)
        # the client of these tests checks that nothing follows the end
        connection.protocol.resume_writing()
        answer = await connection.wait_for(1)
        assert answer.reset == "INTERNAL_ERROR"
        connection.check_windows()

    run(scene)
