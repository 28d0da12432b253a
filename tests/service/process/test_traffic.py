"""The pool of workers keeps a history of their traffic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.worker_snapshots import worker_snapshot
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.listener import listen
from turnpike.service.process import worker_pool
from turnpike.service.process.ports import Ports
from turnpike.service.process.worker_pool import WorkerPool


@pytest.mark.parametrize("damaged", [False, True])
def test_reports_of_workers_become_moments(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damaged: bool
) -> None:
    """A report that cannot be counted is logged, and the next ones are recorded."""
    monkeypatch.setattr(worker_pool, "MOMENT_SECONDS", 0.01)

    async def record() -> list[dict[str, Any]]:
        with listen("127.0.0.1", 0) as listener:
            pool = WorkerPool(
                Settings(), Ports.of(1, listener), lambda *_: None, {}, lambda _: asyncio.sleep(0)
            )
        report = {"counters": {"models": 3}} if damaged else worker_snapshot(2)
        worker: Any = SimpleNamespace(counters=report)
        pool._workers[1] = worker
        recording = asyncio.create_task(pool._record_traffic())
        for requests in (3, 9):
            await asyncio.sleep(0.1)
            worker.counters = worker_snapshot(requests)
        await asyncio.sleep(0.1)
        recording.cancel()
        moments: list[dict[str, Any]] = (await pool._traffic(0))["moments"]
        return moments

    moments = asyncio.run(record())
    assert max(moment["total"]["requests_per_s"] for moment in moments) > 50
    assert ("the traffic of the last seconds could not be recorded" in caplog.text) == damaged
