"""Replicas report to the coordinator and carry out its orders. Here both are in one process, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.rollout_workers import Workers, write
from turnpike.service.errors import NotReadyError
from turnpike.service.ray.coordinator import FORGOTTEN_SECONDS, SILENT_SECONDS, Coordinator
from turnpike.service.ray.coordinator_client import CoordinatorClient
from turnpike.service.repository.location import locate
from turnpike.service.repository.rollout import Rollout
from turnpike.service.telemetry.counters import RequestCounters, merge_snapshots


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Handle:
    """A handle as Ray gives it: `handle.method.remote(...)`."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        class Method:
            remote = staticmethod(getattr(self.target, name))

        return Method


class Replica:
    """A replica that has answered some requests, and serves what its rollout says."""

    def __init__(self, handle: Handle, name: str, root: Path) -> None:
        self.counters = RequestCounters()
        self.rollout: Rollout
        self.client = CoordinatorClient(handle, name, self.snapshot)
        self._root = root

    async def start(self) -> None:
        self.rollout = Rollout(locate(self._root), "latest", Workers(1).broadcast)
        await self.rollout.rescan()
        await self.report()

    async def report(self) -> None:
        await self.client.report(self.rollout)

    async def snapshot(self) -> Any:
        return {"counters": self.counters.snapshot(), "drift": {}}

    def answer(self, count: int) -> None:
        for _ in range(count):
            self.counters.count_response("/v2/models/{model}/infer", "POST", 200, 1000)


def answered(snapshots: list[Any]) -> int:
    """The requests that all replicas have answered."""
    merged = merge_snapshots([snapshot["counters"] for snapshot in snapshots])
    return sum(
        count for methods in merged["answered"].values() for by in methods.values() for count in by.values()
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("net", "other"):
        write(tmp_path / "root", name, 1)
    return tmp_path / "root"


def scenario(play: Callable[[Coordinator, Clock], Coroutine[Any, Any, None]]) -> None:
    """Play it with a new coordinator; its background task ends with the event loop."""

    async def run() -> None:
        clock = Clock()
        await play(Coordinator(clock), clock)

    asyncio.run(run())


async def replicas(coordinator: Coordinator, root: Path, count: int = 2) -> list[Replica]:
    started = [Replica(Handle(coordinator), f"replica-{number}", root) for number in range(count)]
    for replica in started:
        await replica.start()
    return started


async def carried_out(order: Awaitable[Any], reporting: list[Replica]) -> Any:
    """The outcome of an order, while these replicas report."""
    ordered = asyncio.ensure_future(order)
    while not ordered.done():
        for replica in reporting:
            await replica.report()
        await asyncio.sleep(0)
    return ordered.result()


def test_counts_of_replicas_that_ended_stay(root: Path) -> None:
    """Also when they ended so long ago that they are forgotten; only their gauges go."""

    async def play(coordinator: Coordinator, clock: Clock) -> None:
        first, second = await replicas(coordinator, root)
        first.answer(3)
        second.answer(4)
        await first.report()
        assert answered(await second.client.ask("snapshots")) == 7
        assert sum(each["counters"]["workers"] for each in await coordinator.snapshots()) == 2
        for passed in (SILENT_SECONDS, FORGOTTEN_SECONDS):
            clock.now += passed + 1
            assert answered(await second.client.ask("snapshots")) == 7
            assert sum(each["counters"]["workers"] for each in await coordinator.snapshots()) == 1
        assert len(coordinator._replicas) == 1

    scenario(play)


def test_an_order_reaches_every_replica_before_it_is_answered(root: Path) -> None:
    async def play(coordinator: Coordinator, _: Clock) -> None:
        both = await replicas(coordinator, root)
        assert await carried_out(both[0].client.ask("unload", "net"), both) == {"ok": True}
        assert [replica.rollout.names for replica in both] == [["other/1"]] * 2
        # a replica that starts later does not serve it either
        (late,) = await replicas(coordinator, root, 1)
        assert late.rollout.names == ["other/1"]
        everyone = [*both, late]
        assert await carried_out(late.client.ask("load", "net"), everyone) == {"ok": True}
        assert [replica.rollout.names for replica in everyone] == [["net/1", "other/1"]] * 3

    scenario(play)


def test_an_order_does_not_wait_for_replicas_that_ended(root: Path) -> None:
    async def play(coordinator: Coordinator, clock: Clock) -> None:
        first, _ = await replicas(coordinator, root)
        clock.now += SILENT_SECONDS + 1
        assert await carried_out(first.client.ask("unload", "net"), [first]) == {"ok": True}

    scenario(play)


def test_one_replica_that_fails_makes_an_order_fail(root: Path, tmp_path: Path) -> None:
    async def play(coordinator: Coordinator, _: Clock) -> None:
        good = await replicas(coordinator, root, 1)
        # this one sees another repository
        (tmp_path / "elsewhere").mkdir()
        other = Replica(Handle(coordinator), "elsewhere", tmp_path / "elsewhere")
        await other.start()
        outcome = await carried_out(good[0].client.ask("load", "net"), [*good, other])
        assert outcome["ok"] is False
        assert "expected a model of the repository" in outcome["reason"]

    scenario(play)


def test_an_unknown_model_is_no_order_for_replicas_that_start_later(root: Path) -> None:
    async def play(coordinator: Coordinator, _: Clock) -> None:
        both = await replicas(coordinator, root)
        outcome = await carried_out(both[0].client.ask("load", "gone"), both)
        assert (outcome["ok"], outcome["known"]) == (False, False)
        answer = await coordinator.report("new", {}, "", {}, [])
        assert answer["orders"] == []

    scenario(play)


def test_a_new_coordinator_learns_what_is_unloaded(root: Path) -> None:
    """Its process ended, and Ray has started another."""

    async def play(coordinator: Coordinator, clock: Clock) -> None:
        handle = Handle(coordinator)
        old = Replica(handle, "old", root)
        await old.start()
        await carried_out(old.client.ask("unload", "net"), [old])
        handle.target = Coordinator(clock)
        await old.report()
        new = Replica(handle, "new", root)
        await new.start()
        assert new.rollout.names == ["other/1"]
        assert await carried_out(new.client.ask("load", "net"), [old, new]) == {"ok": True}
        assert old.rollout.names == new.rollout.names == ["net/1", "other/1"]

    scenario(play)


def test_without_a_coordinator_replicas_go_on(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Questions get an error that says so; the log says it once, and orders are answered later."""

    class Broken:
        def __getattr__(self, _: str) -> Any:
            return self.fail

        async def fail(self, *_: Any) -> None:
            raise ConnectionError("the actor died")

    async def play(coordinator: Coordinator, _: Clock) -> None:
        handle = Handle(coordinator)
        replica = Replica(handle, "one", root)
        await replica.start()
        order = asyncio.create_task(coordinator.order("unload", "net"))
        await asyncio.sleep(0)
        # it hears of the order, and cannot say that it was carried out
        await replica.report()
        handle.target = Broken()
        for question in ("snapshots", "traffic", "load"):
            with pytest.raises(NotReadyError, match="the coordinator of the replicas does not answer"):
                await replica.client.ask(question, "net")
        for _ in range(2):
            await replica.report()
        assert caplog.text.count("does not answer") == 1
        handle.target = coordinator
        await replica.report()
        assert await order == {"ok": True}

    scenario(play)


def test_without_replicas_an_order_says_so(root: Path) -> None:
    async def play(coordinator: Coordinator, clock: Clock) -> None:
        order = asyncio.create_task(coordinator.order("load", "net"))
        await asyncio.sleep(0)
        clock.now += 60
        assert "no replica has answered within" in (await order)["reason"]

    scenario(play)


def test_traffic_is_recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnpike.service.ray.coordinator.MOMENT_SECONDS", 0.01)

    async def play(coordinator: Coordinator, clock: Clock) -> None:
        (replica,) = await replicas(coordinator, root, 1)
        for _ in range(5):
            replica.answer(10)
            clock.now += 1
            await replica.report()
            await asyncio.sleep(0.02)
        history = await replica.client.ask("traffic", 0)
        assert history["moments"]

    scenario(play)


def test_a_replica_reports_while_it_loads_a_model_for_long(root: Path) -> None:
    """The coordinator would take it for dead. Orders for other models are carried out meanwhile."""

    async def play(coordinator: Coordinator, _: Clock) -> None:
        (replica,) = await replicas(coordinator, root, count=1)
        loaded = asyncio.Event()

        async def load(name: str) -> Any:
            await loaded.wait()
            return {"ok": True}

        replica.rollout.load = load  # type: ignore[method-assign]
        slow = asyncio.create_task(coordinator.order("load", "net"))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await replica.report()
            assert await carried_out(coordinator.order("unload", "other"), [replica]) == {"ok": True}
            assert not slow.done()
            loaded.set()
            assert await carried_out(slow, [replica]) == {"ok": True}

    scenario(play)
