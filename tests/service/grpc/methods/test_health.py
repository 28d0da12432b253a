"""Health checks: of the server, of services and of models, once and as a stream."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tests.support.grpc_worker import GrpcWorker, grpc_worker
from turnpike.service.grpc.messages.descriptors import message_class

HEALTH = "grpc.health.v1.Health"
HealthRequest = message_class(f"{HEALTH.rpartition('.')[0]}.HealthCheckRequest")
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


async def state(worker: GrpcWorker, name: str = "") -> int:
    return int((await worker.call(HEALTH, "Check", service=name)).status)


@pytest.mark.parametrize(
    "name", ["", "inference.GRPCInferenceService", "turnpike.v1.GateService", HEALTH, "digits-10"]
)
def test_what_is_served_is_serving_until_the_drain(name: str) -> None:
    """The name of a model works as well as that of a service."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            assert await state(worker, name) == SERVING
            worker.app.draining = True
            assert await state(worker, name) == NOT_SERVING

    asyncio.run(scene())


def test_a_check_of_an_unknown_name_is_refused() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            code, message = await worker.refused(state(worker, "absent"))
            assert code == "NOT_FOUND"
            assert message.startswith("model 'absent': expected a model that is served")

    asyncio.run(scene())


def test_a_watch_sends_each_change_and_ends_with_the_server() -> None:
    """It begins with the present state, and its last message says that the server is not ready any more."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            watch = worker.method(HEALTH, "Watch")(HealthRequest())
            assert (await watch.read()).status == SERVING
            # no second message as long as nothing changes
            waiting = asyncio.ensure_future(watch.read())
            await asyncio.sleep(0.5)
            assert not waiting.done()
            worker.app.draining = True
            assert (await waiting).status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="the server is stopping") as caught:
                await watch.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scene())


def test_a_watch_of_an_unknown_model_waits_for_it() -> None:
    """Unlike a check, which is refused: the model may come."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            watch = worker.method(HEALTH, "Watch")(HealthRequest(service="absent"))
            assert (await watch.read()).status == SERVICE_UNKNOWN
            watch.cancel()

    asyncio.run(scene())


def test_a_watch_holds_no_memory() -> None:
    """It needs no key and lasts as long as its client likes."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            watch = worker.method(HEALTH, "Watch")(HealthRequest(service="digits-10"))
            assert (await watch.read()).status == SERVING
            assert worker.app.context.budget.bytes == 0
            watch.cancel()
            long = worker.method(HEALTH, "Watch")(HealthRequest(service="x" * 257))
            with pytest.raises(grpc.aio.AioRpcError, match="expected at most 256 characters, got 257"):
                await long.read()

    asyncio.run(scene())
