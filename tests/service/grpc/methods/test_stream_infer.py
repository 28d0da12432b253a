"""ModelStreamInfer: order, errors within the stream, limits, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support.grpc_worker import INFERENCE, GrpcWorker, grpc_worker, infer_request
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.methods import stream_infer

ROWS = np.linspace(0, 16, 5 * 64, dtype=np.float32).reshape(5, 1, 8, 8)


def logits(answer: Any) -> Any:
    (raw,) = answer.infer_response.raw_output_contents
    return np.frombuffer(raw, np.float32).tolist()


async def expected(worker: GrpcWorker) -> list[Any]:
    """The answers of ModelInfer to each row."""
    infer = worker.method(INFERENCE, "ModelInfer")
    answers = [await infer(infer_request(ROWS[index : index + 1])) for index in range(len(ROWS))]
    return [np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() for answer in answers]


def test_answers_come_in_order_with_the_ids_and_bits_of_single_requests() -> None:
    """More messages than are answered at a time."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            wanted = await expected(worker)
            count = 3 * stream_infer.MAX_IN_FLIGHT
            requests = [
                infer_request(ROWS[index % 5 : index % 5 + 1], request_id=f"n{index}")
                for index in range(count)
            ]
            call = worker.method(INFERENCE, "ModelStreamInfer")(iter(requests))
            answers = [answer async for answer in call]
            assert [answer.infer_response.id for answer in answers] == [f"n{index}" for index in range(count)]
            assert [logits(answer) for answer in answers] == [wanted[index % 5] for index in range(count)]
            # each is counted and logged as a request of its own, beside those before and the stream itself
            answered = worker.app.context.counters.snapshot()["answered"]
            assert answered[f"/{INFERENCE}/ModelInfer"]["POST"]["200"] == count + len(ROWS)
            assert answered[f"/{INFERENCE}/ModelStreamInfer"]["POST"]["200"] == 1

    asyncio.run(scene())


def test_an_error_ends_its_message_and_not_the_stream() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            good = infer_request(ROWS[:1])
            requests = [good, infer_request(ROWS[:1], name="absent", request_id="bad"), good]
            call = worker.method(INFERENCE, "ModelStreamInfer")(iter(requests))
            first, second, third = [answer async for answer in call]
            assert logits(first) == logits(third)
            assert second.error_message.startswith("model 'absent': expected a model that is served")
            assert second.infer_response.id == "bad"
            assert not first.error_message
            for answer in (first, second, third):
                assert answer.infer_response.parameters["triton_final_response"].bool_param

    asyncio.run(scene())


def test_a_message_that_is_none_is_an_error_within_the_stream() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.channel.stream_stream(
                f"/{INFERENCE}/ModelStreamInfer",
                response_deserializer=message_class("inference.ModelStreamInferResponse").FromString,
            )(iter([b"\xff\xff", infer_request(ROWS[:1]).SerializeToString()]))
            damaged, good = [answer async for answer in call]
            assert damaged.error_message.startswith("body: expected a message inference.ModelInferRequest")
            assert logits(good)

    asyncio.run(scene())


def test_a_stream_without_messages_ends_well() -> None:
    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.method(INFERENCE, "ModelStreamInfer")(iter([]))
            assert [answer async for answer in call] == []
            assert await call.code() is grpc.StatusCode.OK

    asyncio.run(scene())


def test_an_idle_stream_ends_with_the_server_after_its_answers() -> None:
    """The client learns that it needs a new stream."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.method(INFERENCE, "ModelStreamInfer")()
            await call.write(infer_request(ROWS[:1]))
            assert logits(await call.read())
            draining = asyncio.create_task(worker.drain())
            with pytest.raises(
                grpc.aio.AioRpcError, match="the server is stopping: open a new stream"
            ) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await draining == 0

    asyncio.run(scene())


def test_a_cancelled_stream_leaves_nothing_behind() -> None:
    """Its requests are taken out of the queue: `grpc_worker` checks that nothing is held at the end."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            call = worker.method(INFERENCE, "ModelStreamInfer")()
            for _ in range(20):
                await call.write(infer_request(ROWS))
            call.cancel()
            await asyncio.sleep(0.05)
            assert await expected(worker)
            async with asyncio.timeout(5):
                while worker.app.context.counters.in_flight:
                    await asyncio.sleep(0.005)

    asyncio.run(scene())


def test_answers_that_wait_for_the_client_count_as_memory() -> None:
    """Large answers of a stream are refused like others once `--max-held` is used up."""
    rows = np.zeros((1000, 1, 8, 8), np.float32)
    gates = [f"layer{number:02}.transform_gate" for number in range(10)]

    async def scene() -> None:
        # room for two answers of 2.6 MB, beside the requests
        async with grpc_worker(max_body=600_000, max_held=7_000_000) as worker:
            # a client whose windows stay small
            options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
            await worker.channel.close()
            worker.channel = grpc.aio.insecure_channel(f"127.0.0.1:{worker.port}", options)
            call = worker.method(INFERENCE, "ModelStreamInfer")()
            count = 8
            for _ in range(count):
                await call.write(infer_request(rows, outputs=gates))
                # nothing is read meanwhile
                await asyncio.sleep(0.1)
            await call.done_writing()
            answers = [await call.read() for _ in range(count)]
            errors = [answer.error_message for answer in answers if answer.error_message]
            assert 0 < len(errors) < count
            assert set(errors) == {"server: the memory for requests (--max-held) is used up; try again"}

    asyncio.run(scene())
