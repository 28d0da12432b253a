"""Payload events: what they contain, what is dropped, and that requests never wait for their receiver."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from tests.support.event_receiver import EventReceiver, event_receiver
from tests.support.fake_request import FakeRequest
from tests.support.grpc_worker import INFERENCE, grpc_worker, infer_request
from tests.support.in_process_worker import (
    GATES,
    INFER,
    NAME,
    InProcessWorker,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
    run_scene,
)
from turnpike.service.config.settings import Settings
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.requests.payload_events import EVENTS_PER_SENDER, MAX_SENDERS, PayloadEvents
from turnpike.service.requests.response import Response

REQUEST, RESPONSE = (f"org.kubeflow.serving.inference.{kind}" for kind in ("request", "response"))
PREDICT = f"/v1/models/{NAME}:predict"
Scene = Callable[[InProcessWorker, EventReceiver], Awaitable[None]]


def play(scene: Scene, **settings: Any) -> None:
    """Run a scene with a worker that sends its events to a receiver."""

    async def with_receiver(worker: InProcessWorker) -> None:
        async with event_receiver() as receiver:
            events = PayloadEvents.from_settings(Settings(payload_events=receiver.url, **settings))
            for route in worker.app.router.routes:
                if getattr(route.endpoint, "sends_events", False):
                    route.endpoint._events = events  # type: ignore[attr-defined]
            await scene(worker, receiver)
            assert events is not None
            await events.close()

    run_scene(load_worker(access_log=False, api_keys=("secret-key",)), with_receiver)


async def ask(worker: InProcessWorker, path: str, body: bytes, **headers: Any) -> Any:
    client = worker.connect()
    client.send(request(path, body, {"X-Api-Key": "secret-key"} | headers))
    return await client.wait_for_reply()


def test_a_request_and_its_answer_are_events_as_kserve_sends_them() -> None:
    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        body = infer(rows(3))
        reply = await ask(worker, INFER, body, **{"Content-Type": "application/json", "X-Request-Id": "r-1"})
        sent, answered = await receiver.until(2)
        assert (sent.body, answered.body) == (body, reply.body)
        assert (sent.headers["ce-type"], answered.headers["ce-type"]) == (REQUEST, RESPONSE)
        for event in (sent, answered):
            headers = event.headers
            assert event.line == "POST /events?of=1 HTTP/1.1"
            assert (headers["ce-specversion"], headers["ce-id"]) == ("1.0", "r-1")
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", headers["ce-time"])
            assert headers["ce-source"]
            assert (headers["ce-inferenceservicename"], headers["ce-modelversion"]) == (NAME, "1")
            assert (headers["ce-namespace"], headers["ce-component"]) == ("default", "predictor")
            assert (headers["ce-endpoint"], headers["ce-metadata"]) == ("default", "{}")
            assert headers["content-type"] == "application/json"
            # a key never leaves the service
            assert b"secret-key" not in event.raw_head + event.body
            assert not {"x-api-key", "authorization"} & set(headers)

    play(scene)


def test_a_caller_may_choose_the_id_of_events() -> None:
    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        await ask(worker, INFER, infer(rows(3)), **{"Ce-Id": "chosen"})
        await ask(worker, INFER, infer(rows(3)), **{"Ce-Id": "not valid"})
        ids = [event.headers["ce-id"] for event in await receiver.until(4)]
        assert ids[:2] == ["chosen", "chosen"]
        assert " " not in ids[2]
        assert ids[2] == ids[3]

    play(scene)


def test_predictions_have_events_and_gates_have_none() -> None:
    """Bodies are those that are decoded, and those before compression."""

    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        await ask(worker, GATES, infer(rows(3)))
        body = json.dumps({"instances": rows(3).tolist()}).encode()
        reply = await ask(worker, PREDICT, gzip.compress(body), **{"Content-Encoding": "gzip"})
        table = ",".join(map(str, rows(3).ravel())).encode() + b"\n"
        csv = {"Content-Type": "text/csv", "Accept": "text/csv"}
        table_reply = await ask(worker, PREDICT, table, **csv)
        events = await receiver.until(4)
        assert [event.body for event in events] == [body, reply.body, table, table_reply.body]
        assert [event.headers["content-type"] for event in events] == [
            "application/json",
            "application/json",
            "text/csv",
            "text/csv; charset=utf-8",
        ]

    play(scene)


def test_binary_tensors_have_the_length_of_their_json() -> None:
    """Without it, nobody could tell the JSON from the tensors."""

    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        body, headers = binary_infer(rows(3), binary_data_output=True)
        reply = await ask(worker, INFER, body, **headers)
        sent, answered = await receiver.until(2)
        for event, length in (
            (sent, headers["Inference-Header-Content-Length"]),
            (answered, reply.headers["inference-header-content-length"]),
        ):
            metadata = event.headers["ce-metadata"].replace("%22", '"')
            assert json.loads(metadata) == {"Inference-Header-Content-Length": [str(length)]}
        assert answered.headers["content-type"] == "application/octet-stream"
        assert answered.body == reply.body

    play(scene)


@pytest.mark.parametrize(("mode", "kinds"), [("request", [REQUEST]), ("response", [RESPONSE])])
def test_a_mode_selects_one_of_both(mode: str, kinds: list[str]) -> None:
    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        for _ in range(2):
            await ask(worker, INFER, infer(rows(3)))
        assert [event.headers["ce-type"] for event in await receiver.until(2)] == kinds * 2

    play(scene, payload_mode=mode)


def test_a_request_that_fails_has_no_answer() -> None:
    """As with KServe, whatever it contains. One without a key has no events at all."""

    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        assert (await ask(worker, INFER, b"{}", **{"X-Api-Key": "other"})).status == 401
        assert (await ask(worker, INFER, b"{}")).status == 400
        (event,) = await receiver.until(1)
        assert (event.body, event.headers["ce-type"]) == (b"{}", REQUEST)

    play(scene)


def test_calls_of_grpc_have_their_messages() -> None:
    """Also those on a stream, each without the frame around it."""

    async def scene() -> None:
        message = infer_request(np.zeros((1, 1, 8, 8), np.float32), request_id="seven")
        async with event_receiver() as receiver, grpc_worker(payload_events=receiver.url) as worker:
            answer = await worker.method(INFERENCE, "ModelInfer")(message, metadata=(("x-api-key", "key-1"),))
            call = worker.method(INFERENCE, "ModelStreamInfer")(iter([message]))
            assert len([streamed async for streamed in call]) == 1
            events = await receiver.until(4)
            await worker.app.stop()
        parse = message_class("inference.ModelInferResponse").FromString
        for sent, answered in (events[:2], events[2:]):
            assert sent.body == message.SerializeToString()
            assert parse(answered.body) == answer
            for event in (sent, answered):
                assert event.headers["content-type"] == "application/x-protobuf"
                assert event.headers["ce-inferenceservicename"] == NAME
                assert b"key-1" not in event.raw_head

    asyncio.run(scene())


def test_predictions_of_grpc_have_their_messages() -> None:
    async def scene() -> None:
        body = json.dumps({"instances": [[0] * 64]}).encode()
        message = message_class("turnpike.v1.PredictRequest")(model_name=NAME, json=body)
        async with event_receiver() as receiver, grpc_worker(payload_events=receiver.url) as worker:
            answer = await worker.method("turnpike.v1.ModelService", "Predict")(message)
            events = await receiver.until(2)
            await worker.app.stop()
        assert json.loads(answer.json)["predictions"][0]["label"]
        assert [event.body for event in events] == [message.SerializeToString(), answer.SerializeToString()]

    asyncio.run(scene())


@asynccontextmanager
async def queue_to(receiver: EventReceiver, **limits: Any) -> AsyncIterator[tuple[PayloadEvents, Any]]:
    """Events with these limits, and a function that adds some with one body."""
    events = PayloadEvents(receiver.url, **limits)

    def add(count: int, body: bytes = b"x") -> None:
        for _ in range(count):
            events.add_response(FakeRequest(), "model", 1, Response(body))

    yield events, add
    await events.close(0)
    assert events._bytes == 0
    assert not events._senders


def outcomes(events: PayloadEvents) -> dict[str, int]:
    return {outcome: count for outcome, count in events.counts.items() if count}


async def settled(events: PayloadEvents, expected: dict[str, int]) -> None:
    async with asyncio.timeout(10):
        while outcomes(events) != expected:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(("limits", "kept"), [({"max_events": 3}, 4), ({"max_bytes": 100}, 10)])
def test_a_slow_receiver_costs_no_more_than_the_queue(limits: dict[str, int], kept: int) -> None:
    """Adding never waits, and what has no room is dropped and counted."""

    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver, **limits) as (events, add):
            receiver.answers.clear()
            add(1, bytes(10))
            await receiver.until(1)
            add(50, bytes(10))
            assert outcomes(events) == {"dropped": 51 - kept}
            receiver.answers.set()
            await settled(events, {"sent": kept, "dropped": 51 - kept})
            # there is room again
            add(1)
            await settled(events, {"sent": kept + 1, "dropped": 51 - kept})

    asyncio.run(scene())


def test_many_events_are_sent_on_several_connections() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver) as (events, add):
            receiver.answers.clear()
            add(MAX_SENDERS * EVENTS_PER_SENDER * 2)
            await receiver.until(MAX_SENDERS)
            await asyncio.sleep(0.05)
            assert receiver.connections == len(receiver.events) == MAX_SENDERS
            receiver.answers.set()
            await settled(events, {"sent": MAX_SENDERS * EVENTS_PER_SENDER * 2})
            assert receiver.connections == MAX_SENDERS

    asyncio.run(scene())


def test_a_payload_larger_than_the_queue_is_dropped() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver, max_bytes=100) as (events, add):
            add(1, bytes(101))
            add(1, bytes(100))
            await settled(events, {"dropped": 1, "sent": 1})

    asyncio.run(scene())


def test_a_receiver_that_fails_is_left_alone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """It gets one event from each of two senders, and then all that waited. The log says it once."""
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver, pause_seconds=0.2) as (events, add):
            receiver.answer = receiver.answer.replace(b"202", b"503")
            add(20)
            await settled(events, {"failed": 2})
            await asyncio.sleep(0.05)
            assert outcomes(events) == {"failed": 2}
            receiver.answer = receiver.answer.replace(b"503", b"202")
            await settled(events, {"failed": 2, "sent": 18})

    asyncio.run(scene())
    assert [record.message for record in caplog.records if "payload" in record.message] == [
        "payload events are lost: expected a status of 2xx, got 503 (--payload-events)",
        "payload events are received again",
    ]


def test_refusals_in_turn_with_successes_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver) as (events, add):
            for count in range(1, 4):
                receiver.answer = receiver.answer.replace(b"202", b"413")
                add(1)
                await settled(events, {"failed": count} | ({"sent": count - 1} if count > 1 else {}))
                receiver.answer = receiver.answer.replace(b"413", b"202")
                add(1)
                await settled(events, {"failed": count, "sent": count})

    asyncio.run(scene())
    assert len([record for record in caplog.records if "payload" in record.message]) == 2


def test_a_receiver_that_refuses_one_event_gets_the_next_at_once() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver, pause_seconds=60) as (events, add):
            receiver.answer = receiver.answer.replace(b"202", b"400")
            add(20)
            await settled(events, {"failed": 20})

    asyncio.run(scene())


def test_a_receiver_that_never_answers_loses_the_event() -> None:
    async def scene() -> None:
        limits = {"send_seconds": 0.05, "pause_seconds": 0}
        async with event_receiver() as receiver, queue_to(receiver, **limits) as (events, add):
            receiver.answers.clear()
            add(6)
            await settled(events, {"failed": 6})

    asyncio.run(scene())


def test_the_end_sends_what_is_left() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver) as (events, add):
            add(100)
            await events.close()
            assert outcomes(events) == {"sent": 100}
            # a service that starts again sends again
            add(1)
            await settled(events, {"sent": 101})

    asyncio.run(scene())


def test_the_end_does_not_wait_for_a_receiver_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """What was not sent is counted and logged."""

    async def scene() -> None:
        async with event_receiver() as receiver, queue_to(receiver) as (events, add):
            receiver.answers.clear()
            add(10)
            await receiver.until(1)
            async with asyncio.timeout(5):
                await events.close(0.05)
            assert outcomes(events) == {"dropped": 10}

    asyncio.run(scene())
    assert "9 payload events were not sent before the end" in caplog.text


def test_requests_are_answered_while_the_receiver_hangs() -> None:
    async def scene(worker: InProcessWorker, receiver: EventReceiver) -> None:
        receiver.answers.clear()
        for _ in range(20):
            assert (await ask(worker, INFER, infer(rows(3)))).status == 200
        assert len(receiver.events) <= MAX_SENDERS
        receiver.answers.set()

    play(scene)


def test_names_are_escaped() -> None:
    async def scene() -> None:
        async with event_receiver() as receiver:
            events = PayloadEvents(receiver.url)
            events.add_request(FakeRequest(), 'a b%"ü', 1, b"")
            (event,) = await receiver.until(1)
            assert event.headers["ce-inferenceservicename"] == "a%20b%25%22%C3%BC"
            await events.close()

    asyncio.run(scene())


def test_nothing_is_sent_by_default() -> None:
    assert PayloadEvents.from_settings(Settings()) is None
    assert load_worker(access_log=False).app.context.events is None
