"""Faults and overload over minutes: many stops, new versions and kills, and five times too much load."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.digit_requests import BUNDLED_MODEL, checked_requests
from tests.support.live_server import serving, worker_processes
from tests.support.load_clients import ClientRequest, LoadGenerator
from tests.support.waiting import wait_until
from turnpike.service.artifact.runtime import open_model

pytestmark = pytest.mark.timeout(900)


def short_and_long(short: int, long: int) -> list[Any]:
    """Parameters of the usual length (mark load) and of the long one (mark endurance)."""
    return [pytest.param(short, marks=pytest.mark.load), pytest.param(long, marks=pytest.mark.endurance)]


@pytest.mark.parametrize("stops", short_and_long(10, 50))
def test_stops_under_load_lose_nothing(stops: int) -> None:
    """Half of them have kept connections, half a new connection for each request."""
    answered = 0
    for turn in range(stops):
        with serving("--workers", 2, "--drain-wait", 0.2) as server:
            load = LoadGenerator(server.url, checked_requests(16), 16, fresh=turn % 2 == 1)

            async def scenario(load: LoadGenerator = load, wait: float = 0.1 + 0.5 * turn / stops) -> None:
                running = asyncio.create_task(load.run(20))
                await asyncio.sleep(wait)
                server.process.send_signal(signal.SIGTERM)
                while server.process.poll() is None:
                    await asyncio.sleep(0.01)
                load.stopping = True
                await running

            asyncio.run(scenario())
        assert load.tally.lost == [], f"stop {turn}"
        assert load.tally.wrong == []
        assert set(load.tally.statuses) <= {200}
        answered += len(load.tally.good)
    assert answered > 20 * stops


@pytest.mark.load
def test_ten_thousand_requests_get_their_own_results() -> None:
    """Mixed shapes over 64 connections, each with a known result: none is mixed up or lost."""
    with serving("--workers", 2) as server:
        load = LoadGenerator(server.url, checked_requests(500, sizes=(1, 2, 3, 5, 8, 13, 64, 100)), 64)

        async def scenario() -> None:
            running = asyncio.create_task(load.run(240))
            while len(load.tally.good) < 10_000 and not running.done():
                await asyncio.sleep(0.05)
            load.stopping = True
            await running

        asyncio.run(scenario())
    assert len(load.tally.good) >= 10_000
    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert set(load.tally.statuses) == {200}


@pytest.mark.parametrize("swaps", short_and_long(5, 12))
def test_a_new_version_every_two_seconds_loses_nothing(tmp_path: Path, swaps: int) -> None:
    """Versions with the same weights come and go under load. Every response is right, and none is missing."""
    shutil.copytree(BUNDLED_MODEL.parent.parent, tmp_path / "digits-10")
    with serving("--models", tmp_path, "--workers", 2, "--poll", 0.3) as server:
        load = LoadGenerator(server.url, checked_requests(16), 16)

        async def scenario() -> None:
            running = asyncio.create_task(load.run(2 * swaps + 4))
            for version in range(2, 2 + swaps):
                await asyncio.sleep(2)
                folder = tmp_path / "digits-10" / str(version)
                folder.mkdir()
                shutil.copy(BUNDLED_MODEL, folder / "draft")
                (folder / "draft").rename(folder / "model.onnx")
            await running

        asyncio.run(scenario())
        wait_until(lambda: server.get("/v2/models/digits-10").json()["versions"] == [str(1 + swaps)])
    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert set(load.tally.statuses) == {200}


@pytest.mark.parametrize("kills", short_and_long(3, 10))
def test_killed_workers_lose_only_their_current_requests(kills: int) -> None:
    """At most one request per connection for each kill, and the service continues."""
    with serving("--workers", 2) as server:
        load = LoadGenerator(server.url, checked_requests(16), 8)

        async def scenario() -> None:
            running = asyncio.create_task(load.run(3 * kills + 6))
            for _ in range(kills):
                await asyncio.sleep(3)
                os.kill(worker_processes(server)[0].pid, signal.SIGKILL)
            await running

        asyncio.run(scenario())
        wait_until(lambda: len(worker_processes(server)) == 2)
    assert len(load.tally.lost) <= 8 * kills
    assert load.tally.wrong == []
    assert set(load.tally.statuses) == {200}


@pytest.mark.parametrize("seconds", short_and_long(15, 60))
def test_an_overload_is_refused_with_503_or_504(seconds: int) -> None:
    """Only 200, 503 and 504, with good responses in every second."""
    heavy = checked_requests(8, sizes=(64,))
    with serving("--queue", 16) as server:
        tally = asyncio.run(LoadGenerator(server.url, heavy, 80).run(seconds))
    assert tally.lost == []
    assert tally.wrong == []
    assert set(tally.statuses) <= {200, 503, 504}
    assert tally.statuses[503], "expected some requests to be refused, got none"
    answered = Counter(int(moment) for moment in tally.good)
    assert len(answered) >= seconds, "expected good responses in every second"


@pytest.mark.load
def test_large_requests_get_their_own_results() -> None:
    """Long runs take place in a thread and are split by rows in the same way as short runs."""
    assert open_model(BUNDLED_MODEL).inputs
    large = checked_requests(4, sizes=(1000,))
    assert isinstance(large[0], ClientRequest)
    with serving() as server:
        tally = asyncio.run(LoadGenerator(server.url, large, 8).run(5))
    assert tally.wrong == []
    assert set(tally.statuses) == {200}
