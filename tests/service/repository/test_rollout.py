"""The rollout: what all workers serve after changes and faults in the repository."""

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
    """Records requests and answers as workers do. A file with the content "bad" fails in the last one."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.requests: list[tuple[str, Deployment]] = []

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        deployment = Deployment.from_json(json.loads(json.dumps(argument)))
        assert deployment.to_json() == argument
        self.requests.append((what, deployment))
        if what == "commit":
            return [{"serial": deployment.serial}] * self.count
        failed = [
            {"name": file.name, "version": file.version, "reason": "its file is damaged"}
            for file in deployment.files
            if file.path.read_bytes() == b"bad"
        ]
        return [{"failed": []}] * (self.count - 1) + [{"failed": failed}]

    @property
    def committed(self) -> Deployment:
        """The deployment of the last request, which must be a commit."""
        (what, deployment) = self.requests[-1]
        assert what == "commit"
        return deployment


@pytest.fixture
def workers() -> Workers:
    return Workers()


def write(root: Path, name: str, version: int, content: bytes = b"good") -> None:
    put(root, name, version, content)


def run(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutines one after another, and return the result of the last."""

    async def in_order() -> Any:
        return [await coroutine for coroutine in coroutines][-1]

    return asyncio.run(in_order())


def start(root: Path, workers: Workers, policy: str = "latest") -> Rollout:
    rollout = Rollout(root, policy, workers.broadcast)
    run(rollout.rescan())
    return rollout


def test_the_first_scan_serves_the_repository(tmp_path: Path, workers: Workers) -> None:
    """All workers prepare, then all commit. A worker that starts later gets the same deployment."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    write(tmp_path, "other", 7)
    rollout = start(tmp_path, workers)
    assert [what for what, _ in workers.requests] == ["prepare", "commit"]
    assert rollout.names == ["net/2", "other/7"]
    assert workers.committed.models["net"] == scan(tmp_path).models["net"][1:]
    assert rollout.deployment_record == workers.committed.to_json()
    assert rollout.deployment_record["serial"] == 1


@pytest.mark.parametrize(("policy", "names"), [("all", ["net/1", "net/2"]), ("1,3", ["net/1"]), ("3", [])])
def test_the_policy_selects_versions(tmp_path: Path, workers: Workers, policy: str, names: list[str]) -> None:
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    assert start(tmp_path, workers, policy).names == names


def test_an_invalid_policy_is_a_setting_error(tmp_path: Path, workers: Workers) -> None:
    """Before anything is scanned."""
    with pytest.raises(SettingError, match="versions: expected"):
        Rollout(tmp_path, "newest", workers.broadcast)


def test_an_empty_repository_is_committed(tmp_path: Path, workers: Workers) -> None:
    """So that workers know that there is nothing to wait for."""
    assert start(tmp_path, workers).names == []
    assert workers.committed == Deployment(serial=1)


def test_without_changes_no_request_is_sent(tmp_path: Path, workers: Workers) -> None:
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan(), rollout.rescan(explicit=False), rollout.load("net"))
    assert workers.requests == []


def test_a_missing_repository_is_an_error_only_at_the_start(tmp_path: Path, workers: Workers) -> None:
    """At the start it is an invalid setting; later, what is served stays."""
    with pytest.raises(SettingError, match="models: expected a folder"):
        start(tmp_path / "gone", workers)
    write(tmp_path / "root", "net", 1)
    rollout = start(tmp_path / "root", workers)
    (tmp_path / "root").rename(tmp_path / "away")
    run(rollout.rescan())
    assert rollout.names == ["net/1"]
    answer = run(rollout.load("net"))
    assert answer == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: the repository cannot be read",
    }


def test_a_poll_waits_until_files_stop_changing(tmp_path: Path, workers: Workers) -> None:
    """A file that changes between two scans may not be complete. Other models do not wait for it."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"go")
    write(tmp_path, "other", 1)
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1"]
    write(tmp_path, "net", 2, b"goo")
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1", "other/1"]
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/2", "other/1"]


def test_an_explicit_scan_accepts_changes_at_once(tmp_path: Path, workers: Workers) -> None:
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 1)
    run(rollout.rescan())
    assert rollout.names == ["net/1"]


def test_a_removed_model_is_unloaded(tmp_path: Path, workers: Workers) -> None:
    """Once two scans agree that it is gone."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net")
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1"]
    run(rollout.rescan(explicit=False))
    assert rollout.names == []


def test_a_bad_version_leaves_the_old_one_in_service(tmp_path: Path, workers: Workers) -> None:
    """One worker that cannot load it is enough. No worker commits it, and the reason is reported."""
    write(tmp_path, "net", 1)
    write(tmp_path, "other", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    write(tmp_path, "other", 2)
    run(rollout.rescan())
    assert rollout.names == ["net/1", "other/2"]
    assert workers.committed.failed == (UnavailableModel("net", 2, "its file is damaged"),)
    assert rollout.failed == workers.committed.failed


def test_the_start_falls_back_to_the_highest_good_version(tmp_path: Path, workers: Workers) -> None:
    """The highest version that can be loaded counts as the latest, so a restart causes no outage."""
    for version, content in ((1, b"good"), (2, b"good"), (3, b"bad"), (4, b"bad")):
        write(tmp_path, "net", version, content)
    rollout = start(tmp_path, workers)
    assert rollout.names == ["net/2"]
    assert {failed.version for failed in rollout.failed} == {3, 4}


def test_a_bad_file_in_place_of_a_good_one_keeps_the_old_content(tmp_path: Path, workers: Workers) -> None:
    """The old content is still served, and not an older version."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    rollout = start(tmp_path, workers)
    served = workers.committed.models
    write(tmp_path, "net", 2, b"bad")
    run(rollout.rescan())
    assert workers.committed.models == served
    assert rollout.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_bad_version_keeps_a_removed_one_in_service(tmp_path: Path, workers: Workers) -> None:
    """Version 1 is gone and 2 is bad: 1 is still served from memory."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net" / "1")
    write(tmp_path, "net", 2, b"bad")
    run(rollout.rescan())
    assert rollout.names == ["net/1"]


def test_a_bad_file_is_loaded_again_only_if_it_changes(tmp_path: Path, workers: Workers) -> None:
    """Polling does not load it again and again, but a good file in its place is loaded."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    assert workers.requests == []
    write(tmp_path, "net", 2, b"good")
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    assert rollout.names == ["net/2"]
    assert rollout.failed == ()


def test_an_explicit_scan_tries_bad_files_again(tmp_path: Path, workers: Workers) -> None:
    """The cause may not have been the file."""
    write(tmp_path, "net", 1, b"bad")
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan())
    assert [what for what, _ in workers.requests] == ["prepare"]
    assert rollout.failed == (UnavailableModel("net", 1, "its file is damaged"),)


def test_skipped_models_are_reported(tmp_path: Path, workers: Workers) -> None:
    """Their reasons are in the index beside those of bad files."""
    (tmp_path / "root" / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    rollout = start(tmp_path / "root", workers)
    assert rollout.failed == (UnavailableModel("net", 1, "model.onnx is not a file"),)
    answer = run(rollout.load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: model.onnx is not a file"


def test_an_unloaded_model_stays_unloaded_until_it_is_loaded(tmp_path: Path, workers: Workers) -> None:
    """An unloaded model stays unloaded, whatever scans find, until it is loaded."""
    write(tmp_path, "net", 1)
    write(tmp_path, "other", 1)
    rollout = start(tmp_path, workers)
    assert run(rollout.unload("net")) == {"ok": True}
    assert rollout.names == ["other/1"]
    assert workers.committed.left_out == (UnavailableModel("net", 1, "unloaded"),)
    write(tmp_path, "net", 2)
    run(rollout.rescan())
    assert rollout.names == ["other/1"]
    assert workers.committed.left_out == tuple(
        UnavailableModel("net", version, "unloaded") for version in (1, 2)
    )
    assert run(rollout.load("net")) == {"ok": True}
    assert rollout.names == ["net/2", "other/1"]
    assert workers.committed.left_out == (UnavailableModel("net", 1, "not chosen by versions=latest"),)


def test_load_changes_one_model_only(tmp_path: Path, workers: Workers) -> None:
    """Changes of other models wait for a scan."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2)
    write(tmp_path, "other", 1)
    assert run(rollout.load("other")) == {"ok": True}
    assert rollout.names == ["net/1", "other/1"]
    run(rollout.rescan(explicit=False))
    assert run(rollout.unload("other")) == {"ok": True}
    assert rollout.names == ["net/1"]


@pytest.mark.parametrize("name", ["gone", "../net", "", "net/1", "."])
def test_names_in_load_and_unload_are_never_paths(tmp_path: Path, workers: Workers, name: str) -> None:
    """Only what a scan has found can be loaded or unloaded."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path / "net", workers)
    for coroutine in (rollout.load(name), rollout.unload(name)):
        answer = run(coroutine)
        assert (answer["ok"], answer["known"]) == (False, False)
        assert "expected a model of the repository" in answer["reason"]
        assert str(tmp_path) not in answer["reason"]


def test_a_failed_load_gives_the_reason(tmp_path: Path, workers: Workers) -> None:
    """What is served stays."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    assert run(rollout.load("net")) == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: its file is damaged; version 1 is still served",
    }
    assert rollout.names == ["net/1"]


def test_a_load_that_falls_back_to_an_older_version_succeeds(tmp_path: Path, workers: Workers) -> None:
    """The answer is about what is served. That the newest file is bad is in the index."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    rollout = start(tmp_path, workers)
    run(rollout.unload("net"))
    assert workers.committed.failed == ()
    assert run(rollout.load("net")) == {"ok": True}
    assert rollout.names == ["net/1"]
    assert rollout.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_load_that_changes_anything_succeeds(tmp_path: Path, workers: Workers) -> None:
    """Even if another version fails, or an older one has been unusable all along."""
    write(tmp_path, "net", 2)
    (tmp_path / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    rollout = start(tmp_path, workers, "all")
    assert run(rollout.load("net")) == {"ok": True}
    write(tmp_path, "net", 3, b"bad")
    write(tmp_path, "net", 4)
    assert run(rollout.load("net")) == {"ok": True}
    assert rollout.names == ["net/2", "net/4"]
    assert run(rollout.load("net"))["reason"].endswith("its file is damaged; versions 2, 4 are still served")


def test_a_load_without_a_good_file_gives_the_reason(tmp_path: Path, workers: Workers) -> None:
    """With the reason of the newest file."""
    write(tmp_path, "net", 3, b"bad")
    (tmp_path / "net" / "2" / MODEL_FILE).mkdir(parents=True)
    answer = run(start(tmp_path, workers).load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: its file is damaged"


def test_a_load_of_versions_outside_of_the_policy_is_refused(tmp_path: Path, workers: Workers) -> None:
    """The file is good, but the setting leaves it out."""
    write(tmp_path, "net", 1)
    answer = run(start(tmp_path, workers, "2").load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: none of its versions is among those to serve"


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

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        return [await getattr(registry, what)(argument) for registry in self.registries]

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
    rollout = Rollout(root, "latest", workers.broadcast)
    run(rollout.rescan())
    return rollout, workers


@pytest.mark.parametrize("count", [1, 2])
def test_a_new_file_is_served_if_a_worker_lacks_the_old_one(tmp_path: Path, count: int) -> None:
    """By all workers, so that they serve the same. Changes of other models wait for a scan."""
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
    """As long as another worker has the old file in memory."""
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
    """As at a start: the highest version that can be loaded, whether the newer is bad or gone."""
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


def test_loads_unloads_and_scans_are_done_in_sequence(tmp_path: Path, workers: Workers) -> None:
    """Loads, unloads and scans at the same time are done one after another."""
    for name in ("one", "two", "three"):
        write(tmp_path, name, 1)
    rollout = start(tmp_path, workers)
    busy = False
    broadcast = workers.broadcast

    async def slow(what: str, argument: Any) -> list[Any]:
        nonlocal busy
        assert not busy
        busy = True
        await asyncio.sleep(0.001)
        busy = False
        return await broadcast(what, argument)

    async def all_at_once() -> None:
        rollout._broadcast = slow
        await asyncio.gather(
            rollout.unload("one"), rollout.load("one"), rollout.rescan(), rollout.unload("two")
        )

    asyncio.run(all_at_once())
    assert rollout.names == ["one/1", "three/1"]


class KilledWorkers(Workers):
    """The first worker dies of every file with the content "deadly", and the others answer."""

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        answers = await super().broadcast(what, argument)
        deadly = any(file.path.read_bytes() == b"deadly" for file in Deployment.from_json(argument).files)
        return [None, *answers[1:]] if deadly and what == "prepare" else answers


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_file_that_kills_workers_is_not_served(tmp_path: Path, count: int) -> None:
    """Even if no worker lived to report it. The old version is still served."""
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


def test_a_worker_that_dies_by_chance_does_not_fail_a_file(tmp_path: Path) -> None:
    """The files are prepared a second time, and then no worker ends."""
    write(tmp_path, "net", 1)
    workers = Workers()
    rollout = start(tmp_path, workers)
    broadcast, left = workers.broadcast, [None]

    async def once(what: str, argument: Any) -> list[Any]:
        answers = await broadcast(what, argument)
        return [left.pop(), *answers[1:]] if left and what == "prepare" else answers

    rollout._broadcast = once
    write(tmp_path, "net", 2)
    run(rollout.rescan())
    assert rollout.names == ["net/2"]


def test_deployments_reach_real_registries(tmp_path: Path) -> None:
    """Two workers get a new version and a bad one, and a third worker starts later."""
    registries = [ModelRegistry(opened), ModelRegistry(opened)]

    async def broadcast(what: str, argument: Any) -> list[Any]:
        argument = json.loads(json.dumps(argument))
        return [await getattr(registry, what)(argument) for registry in registries]

    async def follow() -> None:
        put(tmp_path, "net", 1)
        rollout = Rollout(tmp_path, "latest", broadcast)
        await rollout.rescan()
        put(tmp_path, "net", 2)
        put(tmp_path, "net", 3, sealed(highway())[:-9])
        await rollout.rescan()
        late = ModelRegistry(opened)
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
