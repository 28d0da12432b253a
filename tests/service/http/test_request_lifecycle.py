"""The lifecycle of a request: overload, disconnecting clients, errors and draining."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.in_process_worker import (
    GATES,
    INFER,
    LARGE_BINARY,
    NAME,
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
from turnpike.service.api import gates as gates_endpoint
from turnpike.service.requests.request import Request, Trace

__all__ = ["access_log_lines"]
INFER_BODY = infer(rows(1))


def test_a_full_queue_gives_503(access_log_lines: list[dict[str, Any]]) -> None:
    """The answer has Retry-After. The connection of a client that retries at once is paused."""

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
            assert reply.json["error"].startswith("queue: expected fewer than 1 requests (--queue) waiting")
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
            assert reply.json["error"].startswith("server: the memory for requests (--max-held) is used up")
        with budget.hold(budget.capacity - len(INFER_BODY)):
            assert (await worker.connect().ask(request(INFER, INFER_BODY))).status == 200

    run(scene)


def test_a_passed_deadline_gives_504(access_log_lines: list[dict[str, Any]]) -> None:
    """The answer is sent while another request still runs. The request itself is not run."""

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
    """It leaves the queue at once, and is logged as 499. Later requests are answered."""

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
        worker.model.batcher.runner._run = lambda feeds, names: 1 / 0  # type: ignore[assignment,return-value]
        reply = await client.ask(request(INFER, INFER_BODY))
        request_id = reply.headers["x-request-id"]
        assert (reply.status, reply.json) == (500, {"error": f"internal error, request id {request_id}"})
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError
        assert worker.counts()["refused"] == {"broken": 1}
        assert (await client.ask(request(INFER, b"{}"))).status == 400

    run(scene)


def test_draining_closes_connections_after_their_response() -> None:
    """This includes responses to requests that started before the drain."""

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
    """A large response that is still being sent may have been marked already."""
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
        worker.app.middleware._observer._tracing = SimpleNamespace(record=record)  # type: ignore[assignment]
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
    """Many connections send rows of their own, and each gets the result of its rows.

    They send them in one piece or two, and with or without an id, so that runs have requests of
    several forms.
    """

    async def scene(worker: InProcessWorker) -> None:
        runtime = worker.model.runtime
        expected = {tag: runtime.run({"x": rows(tag)})[0].ravel().tolist() for tag in range(40)}
        draw = random.Random(1)

        async def talk(client: Client) -> None:
            for _ in range(12):
                tag = draw.randrange(40)
                headers = {"X-Request-Id": f"{tag}-{draw.random()}"} if draw.random() < 0.3 else {}
                more = {"id": str(tag)} if draw.random() < 0.3 else {}
                whole = request(INFER, infer(rows(tag), **more), headers)
                cut = draw.choice([0, 0, 0, 20, len(whole) - 9])
                reply = await client.ask(*([whole[:cut], whole[cut:]] if cut else [whole]))
                assert (reply.status, reply.json.get("id")) == (200, more.get("id"))
                assert reply.json["outputs"][0]["data"] == pytest.approx(expected[tag], abs=1e-6)
                assert reply.headers["x-request-id"].startswith(headers.get("X-Request-Id", ""))

        clients = [worker.connect() for _ in range(24)]
        await asyncio.gather(*map(talk, clients))
        assert worker.counts()["requests"] == 24 * 12

    run(scene)


def test_a_snapshot_counts_requests_that_ended_in_the_same_turn() -> None:
    """Requests are counted at the end of the turn, but a client that has its answer finds it counted."""

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        client.send(request(INFER, infer(rows(1, 2))[:-1]))
        counts = (await worker.app.snapshot())["counters"]
        assert counts["answered"]["/v2/models/{model}/infer"]["POST"] == {"400": 1}

    run(scene)


@pytest.mark.parametrize("key", [None, "wrong", "right"])
def test_each_request_with_a_cached_head_needs_its_key(key: str | None) -> None:
    """A head that was seen before does not stand for a key that was checked before."""
    headers = {} if key is None else {"X-Api-Key": key}

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        for _ in range(3):
            reply = await client.ask(request(INFER, INFER_BODY, headers))
            assert reply.status == (200 if key == "right" else 401)

    run_scene(load_worker(api_keys=("right",)), scene)
