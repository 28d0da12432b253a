"""The rollout of files that take long, or that have a trial before workers load them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rollout_workers import Workers, write
from tests.support.waiting import wait_until
from turnpike.service.errors import NotReadyError
from turnpike.service.repository.deployment import Deployment, UnavailableModel
from turnpike.service.repository.location import Location
from turnpike.service.repository.rollout import Rollout
from turnpike.service.repository.scan import ModelFile

# contents of files: one that workers load for ever, and three that need a trial
SLOW, GOOD, BAD, ENDLESS = b"slow", b"try: good", b"try: bad", b"try: endless"


class SlowWorkers(Workers):
    """Workers that load files with the content `slow` as long as `release` says, and need trials of some."""

    def __init__(self) -> None:
        super().__init__()
        self.released = False

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(name, argument)
        # trials end meanwhile
        await asyncio.sleep(0.002)
        if name == "prepare":
            files = Deployment.from_json(argument).files
            content = {file: file.path.read_bytes() for file in files}
            loading = [[file.name, file.version] for file in files if content[file] == SLOW]
            untried = [
                [file.name, file.version]
                for file in files
                if content[file].startswith(b"try: ") and not file.tried
            ]
            # one worker has loaded what another one is loading
            answers[-1] = {
                **answers[-1],
                "loading": [] if self.released else loading,
                "untried": untried,
            }
        return answers


class Trials:
    """Trials as the content of files says; records them, and which were cancelled."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, file: ModelFile) -> str | None:
        self.files.append(file.name)
        content = file.path.read_bytes()
        try:
            while content == ENDLESS:
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(file.name)
            raise
        return None if content == GOOD else "its trial failed"


Play = Callable[[Rollout, SlowWorkers, Trials], Awaitable[None]]


def run(root: Path, play: Play, **files: bytes) -> None:
    """Play with a repository of these files, version 1 of each model."""
    for name, content in files.items():
        write(root, name, 1, content)

    async def start() -> None:
        workers, trials = SlowWorkers(), Trials()
        rollout = Rollout(Location(root), "latest", workers.broadcast, trial=trials, slow_seconds=0.001)
        async with asyncio.timeout(20):
            await play(rollout, workers, trials)
        rollout.stop()

    asyncio.run(start())


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(wait_until, condition)


@pytest.mark.parametrize("content", [SLOW, ENDLESS])
def test_a_file_that_takes_long_keeps_no_other_away(tmp_path: Path, content: bytes) -> None:
    """Neither at the start nor later, whether a worker loads it or it is on trial."""

    async def play(rollout: Rollout, workers: SlowWorkers, _: Trials) -> None:
        scan = asyncio.create_task(rollout.rescan())
        await until(lambda: rollout.names == ["good/1", "plain/1"])
        assert not scan.done()
        assert [file.name for file in workers.requests[-1][1].loading] == ["a"]
        write(tmp_path, "late", 1)
        assert await rollout.load("late") == {"ok": True}
        await rollout.unload("good")
        write(tmp_path, "polled", 1)
        await rollout.rescan(explicit=False)
        await rollout.rescan(explicit=False)
        assert sorted(rollout.names) == ["late/1", "plain/1", "polled/1"]
        scan.cancel()

    run(tmp_path, play, a=content, good=b"good", plain=GOOD)


def test_the_first_scan_is_complete_when_each_file_is_loaded_or_has_failed(tmp_path: Path) -> None:
    """Not when a file that came later is."""

    async def play(rollout: Rollout, workers: SlowWorkers, _: Trials) -> None:
        scan = asyncio.create_task(rollout.rescan())
        await until(lambda: rollout.names == ["good/1"])
        assert not workers.requests[-1][1].complete
        write(tmp_path, "late", 1, ENDLESS)
        load = asyncio.create_task(rollout.load("late"))
        await until(
            lambda: "late" in {file.name for file in Deployment.from_json(rollout.deployment_record).loading}
        )
        workers.released = True
        await until(lambda: rollout.names == ["good/1", "slow/1"])
        assert Deployment.from_json(rollout.deployment_record).complete
        assert [failed.name for failed in rollout.failed] == ["bad"]
        scan.cancel()
        load.cancel()

    run(tmp_path, play, bad=BAD, good=b"good", slow=SLOW)


def test_the_old_version_is_served_until_the_new_one_is_loaded(tmp_path: Path) -> None:
    """Not an older one, which is not loaded any more. The index does not call it unwanted meanwhile."""

    async def play(rollout: Rollout, workers: SlowWorkers, _: Trials) -> None:
        write(tmp_path, "net", 2)
        await rollout.rescan()
        write(tmp_path, "net", 3, SLOW)
        load = asyncio.create_task(rollout.load("net"))
        await until(lambda: workers.requests[-1][0] == "commit" and workers.committed.loading)
        assert rollout.names == ["net/2"]
        assert {model.version for model in workers.committed.left_out} == {1}
        assert workers.committed.complete
        workers.released = True
        assert await load == {"ok": True}
        assert rollout.names == ["net/3"]

    run(tmp_path, play, net=b"good")


def test_no_worker_loads_a_file_before_its_trial(tmp_path: Path) -> None:
    """Afterwards all do, replacements too."""

    async def play(rollout: Rollout, workers: SlowWorkers, trials: Trials) -> None:
        await rollout.rescan()
        assert rollout.names == ["plain/1"]
        assert trials.files == ["plain"]
        prepared = [file.tried for name, deployment in workers.requests for file in deployment.files]
        # the first time, the workers say that it needs a trial
        assert prepared == [False, True, True]
        assert all(file.tried for file in Deployment.from_json(rollout.deployment_record).files)

    run(tmp_path, play, plain=GOOD)


def test_a_failed_trial_is_remembered(tmp_path: Path) -> None:
    """A poll does not try again until the file is replaced, but a load does."""

    async def play(rollout: Rollout, workers: SlowWorkers, trials: Trials) -> None:
        await rollout.rescan()
        assert rollout.failed == (UnavailableModel("plain", 1, "its trial failed"),)
        await rollout.rescan(explicit=False)
        await rollout.rescan(explicit=False)
        assert trials.files == ["plain"]
        outcome = await rollout.load("plain")
        assert outcome["reason"] == "model 'plain' cannot be loaded: its trial failed"
        assert trials.files == ["plain"] * 2
        write(tmp_path, "plain", 1, GOOD)
        assert await rollout.load("plain") == {"ok": True}
        await rollout.unload("plain")
        assert await rollout.load("plain") == {"ok": True}
        assert trials.files == ["plain"] * 3

    run(tmp_path, play, plain=BAD)


def test_a_trial_ends_when_its_file_is_not_wanted_any_more(tmp_path: Path) -> None:
    """The one who waits for it gets an answer."""

    async def play(rollout: Rollout, workers: SlowWorkers, trials: Trials) -> None:
        load = asyncio.create_task(rollout.load("plain"))
        await until(lambda: trials.files)
        await rollout.unload("plain")
        assert (await load)["reason"] == "model 'plain' cannot be loaded: unloaded"
        assert trials.cancelled == ["plain"]

    run(tmp_path, play, plain=ENDLESS)


@pytest.mark.parametrize("content", [SLOW, ENDLESS])
def test_nobody_waits_for_a_file_when_the_service_stops(tmp_path: Path, content: bytes) -> None:
    async def play(rollout: Rollout, workers: SlowWorkers, trials: Trials) -> None:
        load = asyncio.create_task(rollout.load("net"))
        await until(lambda: workers.requests and workers.requests[-1][0] == "commit")
        rollout.stop()
        with pytest.raises(NotReadyError, match="the service is stopping"):
            await load
        assert trials.cancelled == trials.files

    run(tmp_path, play, net=content)
