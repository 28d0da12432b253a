"""The lifecycle of a request: how its bytes arrive, overload, disconnecting clients, errors and draining."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from service.api import gates as gates_endpoint
from service.http.connection import protocol
from service.http.request import Request, Trace
from tests.support.asgi import Reply
from tests.support.in_process_worker import (
    GATES,
    INFER,
    LESION,
    NAME,
    PREDICT,
    Client,
    InProcessWorker,
    access_log_lines,
    infer,
    load_worker,
    request,
    rows,
    run,
    run_scene,
    until,
)

__all__ = ["access_log_lines"]

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
INFER_BODY = infer(rows(1))
# log fields that differ in each request, or are measured
VARYING_FIELDS = ("id", "ms", "span", "queue_ms", "run_ms")
# bytes: an answer of this size or more is sent no faster than the client reads it
LARGE_ANSWER_BYTES = 1 << 16


def binary(count: int, fill: float | None = None, **parameters: Any) -> tuple[bytes, dict[str, object]]:
    """A request whose rows follow its JSON, and the header with the length of the JSON."""
    images = rows(*range(count)) if fill is None else np.full((count, 1, 8, 8), fill, np.float32)
    tensor = {
        "name": "x",
        "shape": images.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": images.nbytes},
    }
    text = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    return text + images.tobytes(), {"Inference-Header-Content-Length": len(text)}


LARGE_BINARY = binary(2000, 1.0, binary_data_output=True)


@dataclass(frozen=True)
class Case:
    """A request, and what to expect of its result."""

    path: str
    body: bytes
    status: int = 200
    headers: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    # whether the result depends on the size of the body before decoding
    measured: bool = False
    # whether the answer has at least LARGE_ANSWER_BYTES
    large: bool = False


def binary_case(path: str, payload: tuple[bytes, dict[str, object]], status: int = 200, **more: Any) -> Case:
    body, headers = payload
    return Case(path, body, status, headers, **more)


KEYS = {"api_keys": ("open-sesame",), "admin_key": "master"}
MORE = {
    "X-Request-Id": "my-own-1",
    "Traceparent": f"00-{TRACE}-{PARENT}-01",
    "X-Request-Timeout-Ms": 20_000,
    "Origin": "https://one.example",
}
LONG = f"/v2/models/{'m' * 500}/infer"
CASES = {
    "infer": Case(INFER, INFER_BODY),
    "infer of a version": Case(f"/v2/models/{NAME}/versions/1/infer", INFER_BODY),
    "infer of rows": Case(INFER, infer(rows(*range(9)), id="nine")),
    "infer nested": Case(
        INFER,
        json.dumps(
            {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": rows(3).tolist()}]}
        ).encode(),
    ),
    "infer of no rows": Case(INFER, infer(rows())),
    "infer of too many rows for a run": Case(INFER, infer(rows(*range(20))), settings={"max_batch": 8}),
    "headers": Case(INFER, INFER_BODY, headers=MORE),
    "binary": binary_case(INFER, binary(2)),
    "binary both ways": binary_case(INFER, binary(3, binary_data_output=True)),
    "much binary": binary_case(INFER, LARGE_BINARY, large=True),
    "predict": Case(PREDICT, json.dumps({"instances": rows(4, 5).tolist()}).encode()),
    "gates": Case(GATES, INFER_BODY),
    "gates of rows": Case(GATES, infer(rows(1, 2), parameters={"detail": "units", "blocks": True})),
    "gates of many rows": Case(GATES, infer(rows(*range(40)), parameters={"detail": "rows"}), large=True),
    "lesion": Case(LESION, infer(rows(1, 2), close=["layer03.transform_gate"])),
    "curve": Case(LESION, infer(rows(6), curve=True)),
    "a lesion of no gate": Case(LESION, infer(rows(6), close=["nowhere"]), 400),
    "no JSON": Case(INFER, INFER_BODY[:-1], 400),
    "no body": Case(INFER, b"", 400),
    "an odd id": Case(INFER, INFER_BODY, headers={"X-Request-Id": "two words", "Traceparent": "none"}),
    "an odd timeout": Case(INFER, INFER_BODY, 400, headers={"X-Request-Timeout-Ms": "soon"}),
    "an odd length of JSON": Case(INFER, INFER_BODY, 400, headers={"Inference-Header-Content-Length": "-1"}),
    "no key": Case(INFER, INFER_BODY, 401, settings=KEYS),
    "a wrong key": Case(INFER, INFER_BODY, 401, headers={"X-Api-Key": "sesame"}, settings=KEYS),
    "a key": Case(INFER, INFER_BODY, headers={"Authorization": "Bearer open-sesame"}, settings=KEYS),
    "the key of all doors": Case(INFER, INFER_BODY, headers={"X-Api-Key": "master"}, settings=KEYS),
    "no such model": Case("/v2/models/nothing/infer", INFER_BODY, 404),
    "no such version": Case(f"/v2/models/{NAME}/versions/7/infer", INFER_BODY, 404),
    "a long name": Case(LONG, INFER_BODY, 404),
    "too large a body": Case(INFER, INFER_BODY, 413, settings={"max_body": 100}, measured=True),
    "too much JSON": Case(INFER, INFER_BODY, 413, settings={"max_json": 100}),
    "not finite": binary_case(INFER, binary(1, float("inf")), 422),
}


def comparable(reply: Reply) -> tuple[Any, ...]:
    """The parts of a reply that must be the same, however the request arrives."""
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")}
    return reply.status, headers, reply.body


def stable_fields(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in VARYING_FIELDS}


def difference(after: Any, before: Any) -> Any:
    """How much each count has grown."""
    if isinstance(after, dict):
        changed = {key: difference(value, (before or {}).get(key)) for key, value in after.items()}
        return {key: value for key, value in changed.items() if value}
    if isinstance(after, tuple):
        return tuple(np.subtract(after, before or [0] * len(after)).tolist())
    return after - (before or 0)


@pytest.mark.parametrize("name", CASES)
def test_segments_do_not_change_the_outcome(name: str, access_log_lines: list[dict[str, Any]]) -> None:
    """Status, headers, body, the log line and all counts are the same."""
    case = CASES[name]
    whole = request(case.path, case.body, case.headers)
    head = len(whole) - len(case.body)
    parts = (case.body[:50], case.body[50:], b"")
    chunks = b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts])
    encoded = case.path.replace("models", "mod%65ls")
    zipped = gzip.compress(case.body)
    ways: list[tuple[str, tuple[bytes, ...]]] = [
        ("whole", (whole,)),
        ("known", (whole,)),
        ("with a header twice", (request(case.path, case.body, {**case.headers, "A": 1, "a": 2}),)),
        ("after a part of its head", (whole[:20], whole[20:])),
        ("behind a line of nothing", (b"\r\n" + whole,)),
        ("with a query", (request(case.path + "?", case.body, case.headers),)),
        ("encoded", (request(encoded, case.body, case.headers),)),
        ("known still", (whole,)),
    ]
    if case.body:
        ways.append(("head and body", (whole[:head], whole[head:])))
        ways.append(("body in parts", (whole[: head + 1], whole[head + 1 : -1], whole[-1:])))
    if case.body and not case.measured:
        coded = request(case.path, zipped, {**case.headers, "Content-Encoding": "gzip"})
        ways.append(("compressed", (coded,)))
        chunked = whole[:head].replace(b"Content-Length: %d" % len(case.body), b"Transfer-Encoding: chunked")
        ways.append(("chunked", (chunked + chunks,)))

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        expected: tuple[Any, ...] | None = None
        for way, pieces in ways:
            access_log_lines.clear()
            before = worker.counts()
            reply = await client.ask(*pieces)
            await until(lambda: len(access_log_lines) == 1)
            line = stable_fields(access_log_lines[0])
            if way == "encoded":
                assert line["path"] == encoded[:200]
                line["path"] = case.path[:200]
            assert reply.status == case.status, (way, reply)
            assert (len(reply.body) >= LARGE_ANSWER_BYTES) is case.large
            assert access_log_lines[0]["id"] == reply.headers["x-request-id"]
            actual = comparable(reply), line, difference(worker.counts(), before)
            expected = expected or actual
            assert actual == expected, way
        assert client.next_reply() is None

    run_scene(application(tuple(case.settings.items())), scene)


@functools.cache
def application(settings: tuple[tuple[str, Any], ...]) -> InProcessWorker:
    """One application for all cases with the same settings."""
    return load_worker(**dict(settings))


def test_a_full_queue_gives_503(
    access_log_lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has Retry-After. A client that tries again at once is not read from for a while."""
    monkeypatch.setattr(protocol, "OVERLOAD_PAUSE_SECONDS", 0.2)

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            running, waiting, refused = clients = [worker.connect() for _ in range(3)]
            for client in clients[:2]:
                client.send(request(INFER, INFER_BODY))
                await until(lambda: worker.model.batcher._running)
                await asyncio.sleep(0)
            reply = await refused.ask(request(INFER, INFER_BODY))
            assert reply.status == 503
            assert reply.headers["retry-after"] == "1"
            assert reply.json["error"].startswith("queue: expected fewer than 1 requests waiting")
            assert "connection" not in reply.headers
            assert refused.wire.pauses == 1
            refused.send(request(INFER, INFER_BODY))
            release.set()
            assert [(await client.wait_for_reply()).status for client in clients] == [200] * 3
            assert running.wire.pauses == waiting.wire.pauses == 0
        assert worker.counts()["failed"] == {"overloaded": 1}
        assert worker.counts()["refused"] == {"overloaded": 1}
        assert sorted(line["status"] for line in access_log_lines) == [200, 200, 200, 503]

    run(scene, queue=1)


def test_a_body_beyond_the_memory_budget_gives_503() -> None:
    """It is refused before the body is decoded."""

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        with budget.hold(budget.capacity - len(INFER_BODY) + 1):
            reply = await worker.connect().ask(request(INFER, INFER_BODY))
            assert reply.status == 503
            assert reply.json["error"].startswith("server: the memory budget for requests is used up")
        with budget.hold(budget.capacity - len(INFER_BODY)):
            assert (await worker.connect().ask(request(INFER, INFER_BODY))).status == 200

    run(scene)


def test_a_passed_deadline_gives_504(access_log_lines: list[dict[str, Any]]) -> None:
    """It gets its 504 while another request still runs, and is not run itself."""

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            first, late = worker.connect(), worker.connect()
            first.send(request(INFER, INFER_BODY))
            await until(lambda: worker.model.batcher._running)
            reply = await late.ask(request(INFER, INFER_BODY, {"X-Request-Timeout-Ms": 5}))
            assert reply.status == 504
            assert worker.model.batcher.waiting == 0
            release.set()
            assert (await first.wait_for_reply()).status == 200
        assert worker.counts()["failed"] == {"expired": 1}
        assert worker.counts()["sizes"]["1"] == (1, 1)
        assert [line["status"] for line in access_log_lines] == [504, 200]

    run(scene)


def test_a_queued_request_of_a_disconnected_client_is_not_run(access_log_lines: list[dict[str, Any]]) -> None:
    """Its request leaves the queue at once, and is logged as 499. Requests behind it are answered."""

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            first, gone, last = clients = [worker.connect() for _ in range(3)]
            for tag, client in enumerate(clients):
                client.send(request(INFER, infer(rows(tag))))
                await until(lambda: worker.model.batcher._running)
                await asyncio.sleep(0.001)
            assert worker.model.batcher.waiting == 2
            gone.disconnect()
            await until(lambda: len(access_log_lines) == 1)
            assert worker.model.batcher.waiting == 1
            first.disconnect()
            await until(lambda: len(access_log_lines) == 2)
            release.set()
            assert (await last.wait_for_reply()).status == 200
        assert not gone.wire.writes + gone.wire.writes_after_close
        assert not first.wire.writes + first.wire.writes_after_close
        assert worker.counts()["failed"] == {"gone": 2}
        assert worker.counts()["refused"] == {}
        assert [line["status"] for line in access_log_lines] == [499, 499, 200]
        assert worker.counts()["sizes"]["1"] == (2, 1)

    run(scene)


def test_a_client_may_disconnect_while_gates_are_read(
    access_log_lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends without waiting for the work in its thread."""
    release, started = threading.Event(), threading.Event()
    to_thread = asyncio.to_thread

    async def blocked_to_thread(work: Callable[..., Any], *arguments: Any) -> Any:
        def wait() -> Any:
            started.set()
            assert release.wait(10)
            return work(*arguments)

        return await to_thread(wait)

    async def scene(worker: InProcessWorker) -> None:
        monkeypatch.setattr(gates_endpoint, "LARGE_GATE_BYTES", 0)
        monkeypatch.setattr(asyncio, "to_thread", blocked_to_thread)
        client, other = worker.connect(), worker.connect()
        for connection in (client, other):
            connection.send(request(GATES, INFER_BODY))
        await until(started.is_set)
        client.disconnect()
        await until(lambda: len(access_log_lines) == 1)
        release.set()
        assert (await other.wait_for_reply()).json["gates"]
        assert [line["status"] for line in access_log_lines] == [499, 200]
        assert worker.counts()["failed"] == {"gone": 1}

    run(scene)


def test_an_unexpected_error_gives_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets the id of the request, and the connection stays open."""

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        assert (await client.ask(request(INFER, INFER_BODY))).status == 200
        worker.model.batcher._runner._run = lambda feeds, names: 1 / 0  # type: ignore[assignment,return-value]
        reply = await client.ask(request(INFER, INFER_BODY))
        request_id = reply.headers["x-request-id"]
        assert (reply.status, reply.json) == (500, {"error": f"internal error, request id {request_id}"})
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError
        assert worker.counts()["refused"] == {"broken": 1}
        assert (await client.ask(request(INFER, b"{}"))).status == 400

    run(scene)


def test_a_large_response_waits_for_its_reader(access_log_lines: list[dict[str, Any]]) -> None:
    """The answer counts in the budget until it is sent, and the next request waits until then."""
    body, headers = LARGE_BINARY
    large_request = request(INFER, body, headers)

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        client = worker.connect()
        with worker.blocked_runs() as release:
            client.send(large_request)
            await until(lambda: worker.model.batcher._running)
            client.send(request(INFER, INFER_BODY))
            client.connection.pause_writing()
            release.set()
            await until(lambda: not worker.model.batcher._running)
            await asyncio.sleep(0.005)
            assert not client.wire.writes
            assert budget.bytes > LARGE_ANSWER_BYTES
            assert len(access_log_lines) == 0
            # a drain waits for this request, or cuts it off
            assert len(worker.shared.running) == 1
            client.connection.resume_writing()
            assert len((await client.wait_for_reply()).body) > LARGE_ANSWER_BYTES
        assert (await client.wait_for_reply()).status == 200
        assert [line["status"] for line in access_log_lines] == [200, 200]
        assert budget.bytes == 0
        await until(lambda: not worker.shared.running)

    run(scene)


def test_a_large_response_is_not_sent_to_a_disconnected_client(
    access_log_lines: list[dict[str, Any]],
) -> None:
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        with worker.blocked_runs() as release:
            client.send(request(INFER, body, headers))
            await until(lambda: worker.model.batcher._running)
            client.connection.pause_writing()
            release.set()
            await until(lambda: not worker.model.batcher._running)
        await asyncio.sleep(0.002)
        client.disconnect()
        await until(lambda: len(access_log_lines) == 1)
        assert access_log_lines[0]["status"] == 499
        assert not client.wire.writes
        assert not client.wire.writes_after_close

    run(scene)


def test_disconnecting_during_a_large_response_frees_its_memory(
    access_log_lines: list[dict[str, Any]],
) -> None:
    """Nothing stays in the budget. The log has the status with which the answer began."""
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        client.wire.before_write = client.connection.pause_writing
        client.send(request(INFER, body, headers))
        await until(lambda: len(client.wire.writes) == 2)
        assert worker.app.context.budget.bytes > LARGE_ANSWER_BYTES
        client.disconnect()
        await until(lambda: worker.app.context.budget.bytes == 0)
        await until(lambda: len(access_log_lines) == 1)
        assert access_log_lines[0]["status"] == 200
        assert client.connection not in worker.state.connections

    run(scene)


def test_a_large_response_beyond_the_memory_budget_gives_503() -> None:
    """The model has run in vain, but the budget keeps its limit."""
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        capacity = budget.capacity
        try:
            client = worker.connect()
            with worker.blocked_runs() as release:
                client.send(request(INFER, body, headers))
                await until(lambda: worker.model.batcher._running)
                budget.capacity = LARGE_ANSWER_BYTES
                release.set()
                reply = await client.wait_for_reply()
        finally:
            budget.capacity = capacity
        assert reply.status == 503
        assert worker.counts()["refused"] == {"overloaded": 1}

    run(scene)


def test_a_response_that_fails_midway_closes_the_connection(
    access_log_lines: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The client would take the next answer for the rest of this one."""
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()

        def broken() -> None:
            if client.wire.writes:
                raise OSError("no more")

        client.wire.before_write = broken
        client.send(request(INFER, body, headers))
        await until(lambda: client.wire.closing)
        await until(lambda: len(access_log_lines) == 1)
        assert len(client.wire.writes) == 1
        assert access_log_lines[0]["error"].startswith("internal error")
        assert worker.counts()["refused"] == {"broken": 1}

    run(scene)


def test_draining_closes_connections_after_their_response() -> None:
    """Also the answer to a request that started before. The connection closes after it."""

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            client = worker.connect()
            client.send(request(INFER, INFER_BODY))
            await until(lambda: worker.model.batcher._running)
            worker.shared.draining = True
            release.set()
            reply = await client.wait_for_reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert client.wire.closing
        late = worker.connect()
        assert (await late.ask(request(INFER, INFER_BODY))).headers["connection"] == "close"

    run(scene)


def test_draining_marks_the_last_pipelined_response() -> None:
    """Unless an earlier answer has said so already, as a large one does that is still being sent."""
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        first, second = worker.connect(), worker.connect()
        with worker.blocked_runs() as release:
            first.send(request(INFER, INFER_BODY))
            second.send(request(INFER, body, headers))
            await until(lambda: worker.model.batcher._running)
            worker.shared.draining = True
            first.send(request(INFER, INFER_BODY))
            second.wire.before_write = second.connection.pause_writing
            release.set()
            answers = [await first.wait_for_reply(), await first.wait_for_reply()]
            await until(lambda: len(second.wire.writes) == 2)
            second.send(request(INFER, INFER_BODY))
            second.wire.before_write = lambda: None
            second.connection.resume_writing()
            reply = await second.wait_for_reply()
        assert [answer.headers.get("connection") for answer in answers] == [None, "close"]
        assert reply.headers["connection"] == "close"
        await until(lambda: second.wire.eof_written)
        await asyncio.sleep(0.005)
        assert second.next_reply() is None

    run(scene)


def test_each_request_is_recorded_as_a_span(access_log_lines: list[dict[str, Any]]) -> None:
    """The span exists before the log line is written, which has its ids."""
    recorded: list[tuple[Any, ...]] = []

    def record(request: Request, route: str, method: str, status: int, ns: int) -> None:
        assert ns > 0
        recorded.append((request.id, route, method, status, request.model_name))
        request.trace = Trace("t", "s", 1)

    async def scene(worker: InProcessWorker) -> None:
        worker.app._middleware._observer._tracing = SimpleNamespace(record=record)  # type: ignore[assignment]
        for body, status in ((INFER_BODY, 200), (b"{}", 400)):
            await worker.connect().ask(request(INFER, body, {"X-Request-Id": status}))
        await until(lambda: len(access_log_lines) == 2)
        route = "/v2/models/{model}/infer"
        assert recorded == [("200", route, "POST", 200, NAME), ("400", route, "POST", 400, None)]
        assert [(line["trace"], line["span"]) for line in access_log_lines] == [("t", "s")] * 2

    run(scene)


def test_an_error_in_a_batch_affects_only_its_request(caplog: pytest.LogCaptureFixture) -> None:
    """Four requests run in one batch, and one answer cannot be written: the other three are sent."""

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            clients = [worker.connect() for _ in range(4)]
            for tag, client in enumerate(clients):
                client.send(request(INFER, infer(rows(tag))))
                await until(lambda: worker.model.batcher._running)
            broken = clients[2]
            broken.wire.before_write = None  # type: ignore[assignment]
            release.set()
            for client in (clients[0], clients[1], clients[3]):
                assert (await client.wait_for_reply()).status == 200
        assert broken.wire.closing
        assert [record.getMessage().endswith("failed") for record in caplog.records] == [True]

    run(scene)


def test_concurrent_requests_get_their_own_results() -> None:
    """Many connections send rows of their own, in one piece or two, and each gets the result of its rows."""

    async def scene(worker: InProcessWorker) -> None:
        runtime = worker.model.runtime
        expected = {tag: runtime.run({"x": rows(tag)})[0].ravel().tolist() for tag in range(40)}
        draw = random.Random(1)

        async def talk(client: Client) -> None:
            for _ in range(12):
                tag = draw.randrange(40)
                headers = {"X-Request-Id": f"{tag}-{draw.random()}"} if draw.random() < 0.3 else {}
                whole = request(INFER, infer(rows(tag), id=str(tag)), headers)
                cut = draw.choice([0, 0, 0, 20, len(whole) - 9])
                reply = await client.ask(*([whole[:cut], whole[cut:]] if cut else [whole]))
                assert (reply.status, reply.json["id"]) == (200, str(tag))
                assert reply.json["outputs"][0]["data"] == pytest.approx(expected[tag], abs=1e-6)
                assert reply.headers["x-request-id"].startswith(headers.get("X-Request-Id", ""))

        clients = [worker.connect() for _ in range(24)]
        await asyncio.gather(*map(talk, clients))
        assert worker.counts()["requests"] == 24 * 12

    run(scene)
