"""The rollout when workers start late, lack files or die."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.rollout_workers import Workers, run, start, write
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.errors import ModelFileError, NotReadyError
from turnpike.service.registry.model import Model
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.deployment import Deployment, UnavailableModel
from turnpike.service.repository.location import Location
from turnpike.service.repository.rollout import Rollout
from turnpike.service.repository.scan import ModelFile, read_model_file


def test_a_late_worker_does_not_change_what_others_serve(tmp_path: Path, workers: Workers) -> None:
    """It fails on a file that was replaced, while others have the old file in memory."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 1, b"bad")
    run(rollout.rescan(explicit=False))
    write(tmp_path, "other", 1)
    run(rollout.load("other"))
    assert rollout.names == ["net/1", "other/1"]
    assert rollout.failed == ()


class Registries:
    """Workers with a registry each, in which a model is only its name and version."""

    def __init__(self, count: int) -> None:
        self.registries = [ModelRegistry(load_name) for _ in range(count)]

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        return [await getattr(registry, name)(argument) for registry in self.registries]

    def replace_the_last(self, rollout: Rollout) -> set[str]:
        """Replace the last worker; returns the names of models that the new one cannot load."""
        self.registries[-1] = ModelRegistry(load_name)
        return {
            model["name"] for model in run(self.registries[-1].commit(rollout.deployment_record))["failed"]
        }

    @property
    def served(self) -> list[list[str]]:
        return [
            [f"{model.name}/{model.version}" for model in registry.models] for registry in self.registries
        ]


def load_name(file: ModelFile) -> Model:
    if read_model_file(file) == b"bad":
        raise ModelFileError(f"{file.path}: bad", "its file is damaged")
    return cast("Model", SimpleNamespace(name=file.name, version=file.version))


def start_with_registries(root: Path, count: int) -> tuple[Rollout, Registries]:
    """A rollout of two versions of a model, and of another model."""
    for name, version in (("net", 1), ("net", 2), ("other", 1)):
        write(root, name, version)
    workers = Registries(count)
    rollout = Rollout(Location(root), "latest", workers.broadcast)
    run(rollout.rescan())
    return rollout, workers


@pytest.mark.parametrize("count", [1, 2])
def test_a_new_file_is_served_if_a_worker_lacks_the_old_one(tmp_path: Path, count: int) -> None:
    """All workers serve it. Changes of other models wait for a scan."""
    rollout, workers = start_with_registries(tmp_path, count)
    before = rollout.deployment_record["models"]["net"]
    write(tmp_path, "net", 2, b"good, too")
    write(tmp_path, "other", 2)
    lacked = workers.replace_the_last(rollout)
    assert lacked == {"net"}
    run(rollout.reload_failed(lacked))
    assert workers.served == [["net/2", "other/1"]] * count
    assert rollout.deployment_record["models"]["net"] != before
    assert workers.replace_the_last(rollout) == set()


@pytest.mark.parametrize("away", ["net", "."])
def test_models_in_memory_of_another_worker_stay_in_service(tmp_path: Path, away: str) -> None:
    """If a model or the whole repository is removed, workers that serve it continue."""
    rollout, workers = start_with_registries(tmp_path / "models", 2)
    before = rollout.deployment_record["models"]
    (tmp_path / "models" / away).rename(tmp_path / "away")
    run(rollout.reload_failed(workers.replace_the_last(rollout)))
    assert rollout.deployment_record["models"] == before
    assert workers.served[0] == ["net/2", "other/1"]


def test_a_bad_file_and_a_replaced_worker_keep_the_old_file(tmp_path: Path) -> None:
    """Another worker still has the old file in memory."""
    rollout, workers = start_with_registries(tmp_path, 2)
    before = rollout.deployment_record["models"]
    write(tmp_path, "net", 2, b"bad")
    run(rollout.rescan())
    run(rollout.reload_failed(workers.replace_the_last(rollout)))
    assert rollout.deployment_record["models"] == before
    assert rollout.failed == (UnavailableModel("net", 2, "its file is damaged"),)


@pytest.mark.parametrize(("content", "failed"), [(b"bad", [2]), (None, [])])
def test_a_file_that_no_worker_has_falls_back_to_an_older_version(
    tmp_path: Path, content: bytes | None, failed: list[int]
) -> None:
    """The highest version that can be loaded is served, as at a start."""
    rollout, workers = start_with_registries(tmp_path, 1)
    if content is None:
        shutil.rmtree(tmp_path / "net" / "2")
    else:
        write(tmp_path, "net", 2, content)
    run(rollout.reload_failed(workers.replace_the_last(rollout)))
    assert workers.served == [["net/1", "other/1"]]
    assert [model.version for model in rollout.failed] == failed


def test_a_file_that_no_worker_has_is_not_served(tmp_path: Path) -> None:
    """Without a replacement the deployment has only the reason. The other model is still served."""
    rollout, workers = start_with_registries(tmp_path, 1)
    (tmp_path / "net").rename(tmp_path / ".away")
    run(rollout.reload_failed(workers.replace_the_last(rollout)))
    assert workers.served == [["other/1"]]
    assert UnavailableModel("net", 2, "its file cannot be read") in rollout.failed
    assert workers.replace_the_last(rollout) == set()


class KilledWorkers(Workers):
    """The first worker dies of each file with the content "deadly". The other workers answer."""

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(name, argument)
        deadly = any(file.path.read_bytes() == b"deadly" for file in Deployment.from_json(argument).files)
        return [None, *answers[1:]] if deadly and name == "prepare" else answers


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_file_that_kills_workers_is_not_served(tmp_path: Path, count: int) -> None:
    """No worker may be left to report it. The old version is still served."""
    write(tmp_path, "net", 1)
    workers = KilledWorkers()
    rollout = start(tmp_path, workers)
    workers.count = count
    write(tmp_path, "net", 2, b"deadly")
    run(rollout.rescan())
    assert rollout.names == ["net/1"]
    assert [(model.version, model.reason) for model in rollout.failed] == [
        (2, "a worker ended while it was loaded")
    ]


def test_a_file_that_kills_workers_does_not_keep_the_others_out(tmp_path: Path) -> None:
    """All of them are new, as at a start. Each is tried by itself."""
    for name, content in (("a", b"good"), ("b", b"deadly"), ("c", b"bad"), ("d", b"good")):
        write(tmp_path, name, 1, content)
    rollout = start(tmp_path, KilledWorkers())
    assert rollout.names == ["a/1", "d/1"]
    assert [(model.name, model.reason) for model in rollout.failed] == [
        ("b", "a worker ended while it was loaded"),
        ("c", "its file is damaged"),
    ]


class SlowlyKilledWorkers(Workers):
    """The first worker dies of each file with the content "deadly", and before that it is still loading it.

    Files with the content "endless" are always loading.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dies_next = False

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(name, argument)
        contents = {file: file.path.read_bytes() for file in Deployment.from_json(argument).files}
        if name == "commit":
            return answers
        if b"deadly" in contents.values():
            self.dies_next = not self.dies_next
            if not self.dies_next:
                return [None, *answers[1:]]
        slow = [file for file, content in contents.items() if content in (b"deadly", b"endless")]
        return [answer | {"loading": [[file.name, file.version] for file in slow]} for answer in answers]


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_file_that_kills_workers_late_is_not_served(tmp_path: Path, others: int) -> None:
    """However often they are asked before they die of it. All other files are served."""
    names = [f"good-{number}" for number in range(others)]
    for name in names:
        write(tmp_path, name, 1)
    write(tmp_path, "deadly", 1, b"deadly")
    rollout = start(tmp_path, SlowlyKilledWorkers())
    assert rollout.names == [f"{name}/1" for name in names]
    assert rollout.failed == (UnavailableModel("deadly", 1, "a worker ended while it was loaded"),)


def test_a_file_that_never_loads_delays_nothing_after_ends_of_workers(tmp_path: Path) -> None:
    """Another one kills workers, and each of the two is tried alone. Changes of others are made meanwhile."""
    for name, content in (("a", b"endless"), ("b", b"deadly"), ("c", b"good")):
        write(tmp_path, name, 1, content)
    workers = SlowlyKilledWorkers()
    rollout = Rollout(Location(tmp_path), "latest", workers.broadcast)

    async def scene() -> None:
        scan = asyncio.create_task(rollout.rescan())
        await asyncio.wait_for(rollout.deployed.wait(), 10)
        while "c/1" not in rollout.names:
            await asyncio.sleep(0.01)
        assert await rollout.unload("c") == {"ok": True}
        assert rollout.names == []
        assert not scan.done()
        rollout.stop()
        with pytest.raises(NotReadyError):
            await scan

    asyncio.run(scene())


class CrowdedWorkers(Workers):
    """All workers die of more than `most` files, as if their memory did not suffice."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(name, argument)
        return [None, None] if len(Deployment.from_json(argument).files) > self.most else answers


def test_files_that_only_kill_workers_together_are_not_served(tmp_path: Path) -> None:
    """The rollout ends, and what was served before stays."""
    write(tmp_path, "a", 1)
    rollout = start(tmp_path, CrowdedWorkers(1))
    write(tmp_path, "b", 1)
    write(tmp_path, "c", 1)
    run(rollout.rescan())
    assert rollout.names == ["a/1"]
    assert [model.name for model in rollout.failed] == ["b", "c"]


def test_of_files_that_kill_workers_together_the_last_is_not_served(tmp_path: Path) -> None:
    """Each of them could be loaded without the others."""
    for name in "abc":
        write(tmp_path, name, 1)
    workers = CrowdedWorkers(2)
    rollout = start(tmp_path, workers)
    assert rollout.names == ["a/1", "b/1"]
    assert rollout.failed == (UnavailableModel("c", 1, "a worker ended while it was loaded"),)
    prepared = [deployment.models for name, deployment in workers.requests if name == "prepare"]
    assert workers.committed.models in prepared


@pytest.mark.parametrize(("files", "deaths"), [(1, 1), (3, 1), (3, 2)])
def test_a_worker_that_dies_by_chance_does_not_fail_a_file(tmp_path: Path, files: int, deaths: int) -> None:
    """The files are prepared again, several of them one after another, and no worker dies."""
    write(tmp_path, "net", 1)
    workers = Workers()
    rollout = start(tmp_path, workers)
    broadcast, left = workers.broadcast, [None] * deaths

    async def once(name: str, argument: Any) -> list[Any]:
        answers = await broadcast(name, argument)
        return [left.pop(), *answers[1:]] if left and name == "prepare" else answers

    rollout._broadcast = once
    names = ["net", "other", "third"][:files]
    for name in names:
        write(tmp_path, name, 2)
    run(rollout.rescan())
    assert rollout.names == [f"{name}/2" for name in names]
    assert rollout.failed == ()
    (request, prepared), _ = workers.requests[-2:]
    assert (request, prepared.models) == ("prepare", workers.committed.models)


def test_deployments_reach_real_registries(tmp_path: Path) -> None:
    """Two workers get a new version and a bad one, and a third worker starts later."""
    registries = [ModelRegistry(load_model), ModelRegistry(load_model)]

    async def broadcast(name: str, argument: Any) -> list[Any]:
        argument = json.loads(json.dumps(argument))
        return [await getattr(registry, name)(argument) for registry in registries]

    async def follow() -> None:
        put_model(tmp_path, "net", 1)
        rollout = Rollout(Location(tmp_path), "latest", broadcast)
        await rollout.rescan()
        put_model(tmp_path, "net", 2)
        put_model(tmp_path, "net", 3, with_manifest(highway())[:-9])
        await rollout.rescan()
        late = ModelRegistry(load_model)
        await late.commit(rollout.deployment_record)
        for registry in (*registries, late):
            assert registry.ready
            assert registry.find("net").version == 2
            assert registry.index()[1:] == [
                {"name": "net", "version": "2", "state": "READY", "reason": ""},
                {
                    "name": "net",
                    "version": "3",
                    "state": "UNAVAILABLE",
                    "reason": "its file is damaged or not an ONNX model",
                },
            ]

    asyncio.run(follow())
