"""Large responses: their memory, slow readers, disconnecting clients and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.in_process_worker import (
    INFER,
    LARGE_BINARY,
    LARGE_RESPONSE_BYTES,
    InProcessWorker,
    access_log_lines,
    infer,
    request,
    rows,
    run,
    until,
)

__all__ = ["access_log_lines"]


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
            client.send(request(INFER, infer(rows(1))))
            client.connection.pause_writing()
            release.set()
            await until(lambda: not worker.model.batcher._running)
            await asyncio.sleep(0.005)
            assert not client.wire.writes
            assert budget.bytes > LARGE_RESPONSE_BYTES
            assert len(access_log_lines) == 0
            # a drain waits for this request, or cuts it off
            assert len(worker.shared.running) == 1
            client.connection.resume_writing()
            assert len((await client.wait_for_reply()).body) > LARGE_RESPONSE_BYTES
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
        assert worker.app.context.budget.bytes > LARGE_RESPONSE_BYTES
        client.disconnect()
        await until(lambda: worker.app.context.budget.bytes == 0)
        await until(lambda: len(access_log_lines) == 1)
        assert access_log_lines[0]["status"] == 200
        assert client.connection not in worker.shared.connections

    run(scene)


@pytest.mark.parametrize(
    ("others", "status", "reason"),
    [(LARGE_RESPONSE_BYTES, 503, "overloaded"), (0, 413, "too_large")],
)
def test_a_large_response_beyond_the_memory_budget_is_refused(others: int, status: int, reason: str) -> None:
    """The model has run already, but the budget keeps its limit, of which others may take a part."""
    body, headers = LARGE_BINARY

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        capacity = budget.capacity
        try:
            client = worker.connect()
            with worker.blocked_runs() as release:
                client.send(request(INFER, body, headers))
                await until(lambda: worker.model.batcher._running)
                budget.capacity = LARGE_RESPONSE_BYTES + others
                budget.bytes += others
                release.set()
                reply = await client.wait_for_reply()
        finally:
            budget.capacity = capacity
            budget.bytes -= others
        assert reply.status == status
        assert ("retry-after" in reply.headers) == (status == 503)
        assert worker.counts()["refused"] == {reason: 1}

    run(scene)


def test_a_response_that_fails_midway_closes_the_connection(
    access_log_lines: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the client would read the next response as the rest of this one."""
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
