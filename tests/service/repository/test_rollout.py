"""What all workers are told to serve, whatever happens to the repository."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.errors import ModelFileError, SettingError
from service.registry.model import Model
from service.registry.registry import ModelRegistry
from service.repository.deployment import Deployment, UnavailableModel
from service.repository.rollout import Rollout
from service.repository.scan import MODEL_FILE, ModelFile, read_model_file, scan
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import opened, put, sealed


class Workers:
    """Answer as workers do; a file that says "bad" fails in the last of them."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.asked: list[tuple[str, Deployment]] = []

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        plan = Deployment.from_json(json.loads(json.dumps(argument)))
        assert plan.to_json() == argument
        self.asked.append((what, plan))
        if what == "commit":
            return [{"serial": plan.serial}] * self.count
        bad = [
            {"name": found.name, "version": found.version, "reason": "its file is damaged"}
            for found in plan.files
            if found.path.read_bytes() == b"bad"
        ]
        return [{"failed": []}] * (self.count - 1) + [{"failed": bad}]

    @property
    def committed(self) -> Deployment:
        (what, plan) = self.asked[-1]
        assert what == "commit"
        return plan


@pytest.fixture
def workers() -> Workers:
    return Workers()


def write(root: Path, name: str, version: int, content: bytes = b"good") -> None:
    put(root, name, version, content)


def wait(*works: Coroutine[Any, Any, Any]) -> Any:
    async def one_by_one() -> Any:
        return [await work for work in works][-1]

    return asyncio.run(one_by_one())


def start(root: Path, workers: Workers, policy: str = "latest") -> Rollout:
    director = Rollout(root, policy, workers.broadcast)
    wait(director.rescan())
    return director


def test_the_first_look_serves_what_is_there(tmp_path: Path, workers: Workers) -> None:
    """Prepared by all, then committed by all; a worker that comes later is given the same plan."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    write(tmp_path, "other", 7)
    director = start(tmp_path, workers)
    assert [what for what, _ in workers.asked] == ["prepare", "commit"]
    assert director.names == ["net/2", "other/7"]
    assert workers.committed.models["net"] == scan(tmp_path).models["net"][1:]
    assert director.plan == workers.committed.to_json()
    assert director.plan["serial"] == 1


@pytest.mark.parametrize(("policy", "names"), [("all", ["net/1", "net/2"]), ("1,3", ["net/1"]), ("3", [])])
def test_the_policy_says_which_versions(
    tmp_path: Path, workers: Workers, policy: str, names: list[str]
) -> None:
    """All, or those of a list."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    assert start(tmp_path, workers, policy).names == names


def test_a_policy_that_makes_no_sense_stops_the_start(tmp_path: Path, workers: Workers) -> None:
    """Before anything is looked at."""
    with pytest.raises(SettingError, match="versions: expected"):
        Rollout(tmp_path, "newest", workers.broadcast)


def test_an_empty_repository_is_committed_too(tmp_path: Path, workers: Workers) -> None:
    """So that workers know that there is nothing to wait for."""
    assert start(tmp_path, workers).names == []
    assert workers.committed == Deployment(serial=1)


def test_nothing_new_is_nothing_to_do(tmp_path: Path, workers: Workers) -> None:
    """Looks that find what is served ask nobody."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    workers.asked.clear()
    wait(director.rescan(), director.rescan(explicit=False), director.load("net"))
    assert workers.asked == []


def test_a_missing_repository_stops_the_start_and_no_more(tmp_path: Path, workers: Workers) -> None:
    """At first it is a setting that makes no sense; later what is served stays."""
    with pytest.raises(SettingError, match="models: expected a folder"):
        start(tmp_path / "gone", workers)
    write(tmp_path / "root", "net", 1)
    director = start(tmp_path / "root", workers)
    (tmp_path / "root").rename(tmp_path / "away")
    wait(director.rescan())
    assert director.names == ["net/1"]
    answer = wait(director.load("net"))
    assert answer == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: the repository cannot be read",
    }


def test_a_poll_waits_until_files_stand_still(tmp_path: Path, workers: Workers) -> None:
    """A file that changes between two looks is still being written; others are not held up by it."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"go")
    write(tmp_path, "other", 1)
    wait(director.rescan(explicit=False))
    assert director.names == ["net/1"]
    write(tmp_path, "net", 2, b"goo")
    wait(director.rescan(explicit=False))
    assert director.names == ["net/1", "other/1"]
    wait(director.rescan(explicit=False))
    assert director.names == ["net/2", "other/1"]


def test_whoever_asks_need_not_wait(tmp_path: Path, workers: Workers) -> None:
    """An explicit look takes what is there."""
    director = start(tmp_path, workers)
    write(tmp_path, "net", 1)
    wait(director.rescan())
    assert director.names == ["net/1"]


def test_a_model_that_is_removed_is_served_no_more(tmp_path: Path, workers: Workers) -> None:
    """Once two looks agree that it is gone."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net")
    wait(director.rescan(explicit=False))
    assert director.names == ["net/1"]
    wait(director.rescan(explicit=False))
    assert director.names == []


def test_a_bad_version_leaves_the_old_one(tmp_path: Path, workers: Workers) -> None:
    """One worker that cannot load it is enough; the others never see it committed, and the reason is told."""
    write(tmp_path, "net", 1)
    write(tmp_path, "other", 1)
    director = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    write(tmp_path, "other", 2)
    wait(director.rescan())
    assert director.names == ["net/1", "other/2"]
    assert workers.committed.failed == (UnavailableModel("net", 2, "its file is damaged"),)
    assert director.failed == workers.committed.failed


def test_a_bad_version_at_the_start_leaves_the_one_before_it(tmp_path: Path, workers: Workers) -> None:
    """A restart is no reason to be down: the highest version that works is the latest."""
    for version, content in ((1, b"good"), (2, b"good"), (3, b"bad"), (4, b"bad")):
        write(tmp_path, "net", version, content)
    director = start(tmp_path, workers)
    assert director.names == ["net/2"]
    assert {failed.version for failed in director.failed} == {3, 4}


def test_a_bad_file_in_the_place_of_a_good_one(tmp_path: Path, workers: Workers) -> None:
    """What is served stays, as it was; not even an older version takes its place."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    director = start(tmp_path, workers)
    served = workers.committed.models
    write(tmp_path, "net", 2, b"bad")
    wait(director.rescan())
    assert workers.committed.models == served
    assert director.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_bad_successor_of_what_was_removed(tmp_path: Path, workers: Workers) -> None:
    """Version 1 is gone and 2 is bad: 1 is served on from memory."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net" / "1")
    write(tmp_path, "net", 2, b"bad")
    wait(director.rescan())
    assert director.names == ["net/1"]


def test_a_bad_file_is_tried_once_and_again_when_it_changes(tmp_path: Path, workers: Workers) -> None:
    """Polling does not load it over and over; a better one in its place is taken."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    director = start(tmp_path, workers)
    workers.asked.clear()
    wait(director.rescan(explicit=False), director.rescan(explicit=False))
    assert workers.asked == []
    write(tmp_path, "net", 2, b"good")
    wait(director.rescan(explicit=False), director.rescan(explicit=False))
    assert director.names == ["net/2"]
    assert director.failed == ()


def test_whoever_asks_has_bad_files_tried_again(tmp_path: Path, workers: Workers) -> None:
    """What was wrong may not have been the file."""
    write(tmp_path, "net", 1, b"bad")
    director = start(tmp_path, workers)
    workers.asked.clear()
    wait(director.rescan())
    assert [what for what, _ in workers.asked] == ["prepare"]
    assert director.failed == (UnavailableModel("net", 1, "its file is damaged"),)


def test_skipped_models_are_told(tmp_path: Path, workers: Workers) -> None:
    """Their reasons stand in the index beside those of bad files."""
    (tmp_path / "root" / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    director = start(tmp_path / "root", workers)
    assert director.failed == (UnavailableModel("net", 1, "model.onnx is no file"),)
    answer = wait(director.load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: model.onnx is no file"


def test_unload_and_load(tmp_path: Path, workers: Workers) -> None:
    """An unloaded model stays so, whatever the looks find, until it is loaded."""
    write(tmp_path, "net", 1)
    write(tmp_path, "other", 1)
    director = start(tmp_path, workers)
    assert wait(director.unload("net")) == {"ok": True}
    assert director.names == ["other/1"]
    assert workers.committed.left_out == (UnavailableModel("net", 1, "unloaded"),)
    write(tmp_path, "net", 2)
    wait(director.rescan())
    assert director.names == ["other/1"]
    assert workers.committed.left_out == tuple(
        UnavailableModel("net", version, "unloaded") for version in (1, 2)
    )
    assert wait(director.load("net")) == {"ok": True}
    assert director.names == ["net/2", "other/1"]
    assert workers.committed.left_out == (UnavailableModel("net", 1, "not chosen by versions=latest"),)


def test_load_takes_one_model_only(tmp_path: Path, workers: Workers) -> None:
    """What else has changed waits for a look."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    write(tmp_path, "net", 2)
    write(tmp_path, "other", 1)
    assert wait(director.load("other")) == {"ok": True}
    assert director.names == ["net/1", "other/1"]
    wait(director.rescan(explicit=False))
    assert wait(director.unload("other")) == {"ok": True}
    assert director.names == ["net/1"]


@pytest.mark.parametrize("name", ["gone", "../net", "", "net/1", "."])
def test_names_are_never_paths(tmp_path: Path, workers: Workers, name: str) -> None:
    """Only what a scan has found can be loaded or unloaded."""
    write(tmp_path, "net", 1)
    director = start(tmp_path / "net", workers)
    for work in (director.load(name), director.unload(name)):
        answer = wait(work)
        assert (answer["ok"], answer["known"]) == (False, False)
        assert "expected a model of the repository" in answer["reason"]
        assert str(tmp_path) not in answer["reason"]


def test_a_load_that_fails_says_why(tmp_path: Path, workers: Workers) -> None:
    """And what is served stays."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    assert wait(director.load("net")) == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: its file is damaged; version 1 goes on",
    }
    assert director.names == ["net/1"]


def test_a_load_that_brings_an_older_version_is_one(tmp_path: Path, workers: Workers) -> None:
    """The answer is about what is served; that the newest file is bad stands in the index."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    director = start(tmp_path, workers)
    wait(director.unload("net"))
    assert workers.committed.failed == ()
    assert wait(director.load("net")) == {"ok": True}
    assert director.names == ["net/1"]
    assert director.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_load_that_brings_anything_new_is_one(tmp_path: Path, workers: Workers) -> None:
    """Even where another version fails, or an older one has been of no use all along."""
    write(tmp_path, "net", 2)
    (tmp_path / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    director = start(tmp_path, workers, "all")
    assert wait(director.load("net")) == {"ok": True}
    write(tmp_path, "net", 3, b"bad")
    write(tmp_path, "net", 4)
    assert wait(director.load("net")) == {"ok": True}
    assert director.names == ["net/2", "net/4"]
    assert wait(director.load("net"))["reason"].endswith("its file is damaged; versions 2, 4 go on")


def test_a_load_of_which_nothing_is_served_says_why(tmp_path: Path, workers: Workers) -> None:
    """The reason of the newest file, as that is the one that was meant."""
    write(tmp_path, "net", 3, b"bad")
    (tmp_path / "net" / "2" / MODEL_FILE).mkdir(parents=True)
    answer = wait(start(tmp_path, workers).load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: its file is damaged"


def test_a_load_of_versions_that_are_not_to_be_served_says_so(tmp_path: Path, workers: Workers) -> None:
    """The file is good; the setting leaves it out."""
    write(tmp_path, "net", 1)
    answer = wait(start(tmp_path, workers, "2").load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: none of its versions is among those to serve"


def test_a_late_worker_cannot_take_down_what_others_serve(tmp_path: Path, workers: Workers) -> None:
    """It fails on a file that has since been replaced; for the others that file is good."""
    write(tmp_path, "net", 1)
    director = start(tmp_path, workers)
    write(tmp_path, "net", 1, b"bad")
    wait(director.rescan(explicit=False))
    write(tmp_path, "other", 1)
    wait(director.load("other"))
    assert director.names == ["net/1", "other/1"]
    assert director.failed == ()


class Shelves:
    """Workers with shelves of their own, on which a model is no more than its name and version."""

    def __init__(self, count: int) -> None:
        self.shelves = [ModelRegistry(light) for _ in range(count)]

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        return [await getattr(shelf, what)(argument) for shelf in self.shelves]

    def replace_the_last(self, director: Rollout) -> set[str]:
        """The names of which the new one lacks files."""
        self.shelves[-1] = ModelRegistry(light)
        return {one["name"] for one in wait(self.shelves[-1].commit(director.plan))["failed"]}

    @property
    def served(self) -> list[list[str]]:
        return [[f"{model.name}/{model.version}" for model in shelf.models] for shelf in self.shelves]


def light(found: ModelFile) -> Model:
    if read_model_file(found) == b"bad":
        raise ModelFileError(f"{found.path}: bad", "its file is damaged")
    return cast("Model", SimpleNamespace(name=found.name, version=found.version))


def begun(root: Path, count: int) -> tuple[Rollout, Shelves]:
    """Two versions and another model."""
    for name, version in (("net", 1), ("net", 2), ("other", 1)):
        write(root, name, version)
    workers = Shelves(count)
    director = Rollout(root, "latest", workers.broadcast)
    wait(director.rescan())
    return director, workers


@pytest.mark.parametrize("count", [1, 2])
def test_a_new_file_is_taken_where_a_worker_lacks_the_old(tmp_path: Path, count: int) -> None:
    """By all of them, so that they serve the same; other models wait for a look of their own."""
    director, workers = begun(tmp_path, count)
    before = director.plan["models"]["net"]
    write(tmp_path, "net", 2, b"good, too")
    write(tmp_path, "other", 2)
    lacked = workers.replace_the_last(director)
    assert lacked == {"net"}
    wait(director.reload_failed(lacked))
    assert workers.served == [["net/2", "other/1"]] * count
    assert director.plan["models"]["net"] != before
    assert workers.replace_the_last(director) == set()


@pytest.mark.parametrize("away", ["net", "."])
def test_what_another_worker_has_is_served_on(tmp_path: Path, away: str) -> None:
    """That a model or all of the repository is gone takes nothing from those that serve it."""
    director, workers = begun(tmp_path / "models", 2)
    before = director.plan["models"]
    (tmp_path / "models" / away).rename(tmp_path / "away")
    wait(director.reload_failed(workers.replace_the_last(director)))
    assert director.plan["models"] == before
    assert workers.served[0] == ["net/2", "other/1"]


def test_a_bad_file_and_a_replaced_worker_together_take_nothing_away(tmp_path: Path) -> None:
    """As long as another worker has the file that stood there before."""
    director, workers = begun(tmp_path, 2)
    before = director.plan["models"]
    write(tmp_path, "net", 2, b"bad")
    wait(director.rescan())
    wait(director.reload_failed(workers.replace_the_last(director)))
    assert director.plan["models"] == before
    assert director.failed == (UnavailableModel("net", 2, "its file is damaged"),)


@pytest.mark.parametrize(("content", "failed"), [(b"bad", [2]), (None, [])])
def test_what_no_worker_has_gives_its_place_to_an_older_version(
    tmp_path: Path, content: bytes | None, failed: list[int]
) -> None:
    """As at a start: the highest version that works, whether the newer is bad or gone."""
    director, workers = begun(tmp_path, 1)
    if content is None:
        shutil.rmtree(tmp_path / "net" / "2")
    else:
        write(tmp_path, "net", 2, content)
    wait(director.reload_failed(workers.replace_the_last(director)))
    assert workers.served == [["net/1", "other/1"]]
    assert [one.version for one in director.failed] == failed


def test_what_no_worker_has_is_served_by_none(tmp_path: Path) -> None:
    """With nothing in its place the plan has nothing of it, and the reason; the other model goes on."""
    director, workers = begun(tmp_path, 1)
    (tmp_path / "net").rename(tmp_path / ".away")
    wait(director.reload_failed(workers.replace_the_last(director)))
    assert workers.served == [["other/1"]]
    assert UnavailableModel("net", 2, "its file cannot be read") in director.failed
    assert workers.replace_the_last(director) == set()


def test_one_thing_at_a_time(tmp_path: Path, workers: Workers) -> None:
    """Loads, unloads and looks that come together are done one after another."""
    for name in ("one", "two", "three"):
        write(tmp_path, name, 1)
    director = start(tmp_path, workers)
    busy = False
    broadcast = workers.broadcast

    async def slow(what: str, argument: Any) -> list[Any]:
        nonlocal busy
        assert not busy
        busy = True
        await asyncio.sleep(0.001)
        busy = False
        return await broadcast(what, argument)

    async def storm() -> None:
        director._broadcast = slow
        await asyncio.gather(
            director.unload("one"), director.load("one"), director.rescan(), director.unload("two")
        )

    asyncio.run(storm())
    assert director.names == ["one/1", "three/1"]


class Killed(Workers):
    """One of the workers dies of every file that says "deadly", and the others answer."""

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(what, argument)
        deadly = any(found.path.read_bytes() == b"deadly" for found in Deployment.from_json(argument).files)
        return [None, *answers[1:]] if deadly and what == "prepare" else answers


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_file_that_ends_workers_is_served_by_none(tmp_path: Path, count: int) -> None:
    """Not even when nobody lived to say so; the old version goes on."""
    write(tmp_path, "net", 1)
    workers = Killed()
    director = start(tmp_path, workers)
    workers.count = count
    write(tmp_path, "net", 2, b"deadly")
    wait(director.rescan())
    assert director.names == ["net/1"]
    assert [(one.version, one.reason) for one in director.failed] == [
        (2, "a worker ended while it was loaded")
    ]


def test_a_worker_that_ends_by_chance_fails_no_file(tmp_path: Path) -> None:
    """The files are prepared once more, and then nobody ends."""
    write(tmp_path, "net", 1)
    workers = Workers()
    director = start(tmp_path, workers)
    broadcast, left = workers.broadcast, [None]

    async def once(what: str, argument: Any) -> list[Any]:
        answers = await broadcast(what, argument)
        return [left.pop(), *answers[1:]] if left and what == "prepare" else answers

    director._broadcast = once
    write(tmp_path, "net", 2)
    wait(director.rescan())
    assert director.names == ["net/2"]


def test_with_real_shelves(tmp_path: Path) -> None:
    """Two workers follow a new version, a bad one, and a third worker that comes in their place."""
    shelves = [ModelRegistry(opened), ModelRegistry(opened)]

    async def broadcast(what: str, argument: Any) -> list[Any]:
        argument = json.loads(json.dumps(argument))
        return [await getattr(shelf, what)(argument) for shelf in shelves]

    async def follow() -> None:
        put(tmp_path, "net", 1)
        director = Rollout(tmp_path, "latest", broadcast)
        await director.rescan()
        put(tmp_path, "net", 2)
        put(tmp_path, "net", 3, sealed(highway())[:-9])
        await director.rescan()
        late = ModelRegistry(opened)
        await late.commit(director.plan)
        for shelf in (*shelves, late):
            assert shelf.ready
            assert shelf.find("net").version == 2
            assert shelf.index()[1:] == [
                {"name": "net", "version": "2", "state": "READY", "reason": ""},
                {
                    "name": "net",
                    "version": "3",
                    "state": "UNAVAILABLE",
                    "reason": "its file is damaged or not an ONNX model",
                },
            ]

    asyncio.run(follow())
