"""Which requests are lost when processes stop or die under load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_service import RunningService, deployments_of, running, status_of, write_file
from tests.support.load_clients import ClientRequest, LoadGenerator, LoadTally
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

# durations differ, so that some request is always being processed
SHOTS = [ClientRequest(f"/slow?{seconds}", b"hello") for seconds in (0, 0.003, 0.007, 0.013)]


def run_load(
    service: RunningService, action: Any, *, fresh: bool, seconds: float = 0.3, connections: int = 16
) -> LoadTally:
    """Send requests during an action, until the service has ended or the time is over."""
    load = LoadGenerator(service.url, SHOTS, connections, fresh=fresh)

    async def scenario() -> None:
        running = asyncio.create_task(load.run(20))
        await asyncio.sleep(seconds)
        action()
        end = time.monotonic() + 0.8
        while service.process.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        load.stopping = True
        await running

    asyncio.run(scenario())
    assert load.tally.wrong == []
    return load.tally


@pytest.mark.parametrize(
    "fresh", [pytest.param(False, marks=pytest.mark.slow), True], ids=["keep-alive", "fresh"]
)
def test_a_signal_under_load_loses_nothing(tmp_path: Path, fresh: bool) -> None:
    """Connections are kept, or each request has a new one."""
    with running(tmp_path, workers=2) as service:
        tally = run_load(service, lambda: service.signal(signal.SIGTERM), fresh=fresh)
        assert service.wait() == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}
    assert len(tally.good) > 20
    assert tally.refused


@pytest.mark.endurance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fresh", [False, True], ids=["keep-alive", "fresh"])
def test_fifty_signals_under_load_lose_nothing(tmp_path: Path, fresh: bool) -> None:
    """The signals come at different moments."""
    for turn in range(50):
        with running(tmp_path, workers=1 + turn % 3, drain_wait=0.1 * (turn % 2)) as service:
            tally = run_load(
                service, lambda: service.signal(signal.SIGTERM), fresh=fresh, seconds=0.2 + 0.003 * turn
            )
            assert service.wait() == 0
        assert tally.lost == []
        assert set(tally.statuses) == {200}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_to_all_processes_loses_nothing(tmp_path: Path, kind: signal.Signals) -> None:
    """Service managers and Ctrl-C signal all processes. Workers get a message of the supervisor too."""
    with running(tmp_path, workers=2) as service:
        tally = run_load(service, lambda: os.killpg(service.process.pid, kind), fresh=True)
        assert service.wait() == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_terminated_worker_loses_nothing(tmp_path: Path, fresh: bool) -> None:
    """Other workers accept connections until a new worker replaces it."""
    with running(tmp_path, workers=2) as service:
        before = service.pids(2)
        tally = run_load(service, lambda: os.kill(min(before), signal.SIGTERM), fresh=fresh)
        assert tally.lost == []
        assert tally.refused == 0
        wait_until(lambda: service.pids(2) - before)
        assert service.process.poll() is None


@pytest.mark.slow
def test_a_killed_worker_loses_only_its_own_requests(tmp_path: Path) -> None:
    """It is replaced, the other worker continues, and its counters are kept."""
    write_file(tmp_path, "m", 1)
    with running(tmp_path, workers=2) as service:
        before = service.pids(2)
        tally = run_load(service, lambda: os.kill(min(before), signal.SIGKILL), fresh=False, seconds=1.5)
        assert 0 < len(tally.lost) <= 16
        wait_until(lambda: service.pids(2) - before)
        counts = [snapshot["counters"] for snapshot in service.get("/ask?snapshots")["answer"]]
        assert [count["workers"] for count in counts] == [1, 1, 0]
        answered = sum(
            count["answered"]["/slow"]["POST"]["200"] for count in counts if count["answered"].get("/slow")
        )
        # at most the counts of its last second are lost
        assert len(tally.good) / 2 < answered <= len(tally.good) + len(tally.lost)
        for deployments in deployments_of(service):
            assert [model["version"] for model in deployments[-1]["models"]["m"]] == [1]


@pytest.mark.slow
def test_no_worker_hides_the_end_of_the_supervisor_from_another(tmp_path: Path) -> None:
    """One worker is stopped, and the others notice all the same that the supervisor was killed."""
    with running(tmp_path, workers=3) as service:
        stopped, *others = sorted(service.pids(3), reverse=True)
        os.kill(stopped, signal.SIGSTOP)
        service.signal(signal.SIGKILL)
        try:
            wait_until(lambda: not any(is_alive(pid) for pid in others), 20)
        finally:
            os.kill(stopped, signal.SIGKILL)


def test_workers_finish_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    """No request is lost, no process is left, and the port closes."""
    with running(tmp_path, workers=2) as service:
        pids = service.pids(2)
        tally = run_load(service, lambda: service.signal(signal.SIGKILL), fresh=True)
        service.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in pids))
        assert status_of(service, "/") == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}
