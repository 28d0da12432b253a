"""Models found, prepared beside those that are served, and swapped without anyone noticing."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.errors import ModelFileError, NotFoundError, NotReadyError
from service.registry.model import Model
from service.registry.registry import ModelRegistry
from service.repository.deployment import Deployment, UnavailableModel
from service.repository.scan import ModelFile
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import opened, put, sealed


def file(name: str, version: int, stamp: int = 0) -> ModelFile:
    return ModelFile(name, version, Path(f"/secret/{name}/{version}/model.onnx"), (stamp, stamp, stamp))


def plan(*files: ModelFile, serial: int = 1, **more: Any) -> dict[str, Any]:
    models: dict[str, tuple[ModelFile, ...]] = {}
    for one in files:
        models[one.name] = (*models.get(one.name, ()), one)
    return Deployment(serial, models, **more).to_json()


class Loader:
    """Makes models that know their file; `bad` ones cannot be loaded."""

    def __init__(self) -> None:
        self.bad: set[ModelFile] = set()
        self.loaded: list[ModelFile] = []
        self.threads: set[int] = set()
        self.at_once = 0

    def __call__(self, found: ModelFile) -> Model:
        self.at_once += 1
        assert self.at_once == 1
        self.threads.add(threading.get_ident())
        self.loaded.append(found)
        self.at_once -= 1
        if found in self.bad:
            raise ModelFileError(f"{found.path}: onnxruntime says no", "its file is damaged")
        return cast("Model", SimpleNamespace(name=found.name, version=found.version, file=found))


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def shelf(loader: Loader) -> ModelRegistry:
    return ModelRegistry(loader)


def wait(*works: Coroutine[Any, Any, Any]) -> Any:
    """The answer of the last one, after all the others."""

    async def one_by_one() -> Any:
        return [await work for work in works][-1]

    return asyncio.run(one_by_one())


def files_of(shelf: ModelRegistry) -> list[ModelFile]:
    return [model.file for model in shelf.models]  # type: ignore[attr-defined]


OLD, NEW = file("net", 1), file("net", 2)


def test_models_are_found_by_name_and_version(shelf: ModelRegistry) -> None:
    """Without a version it is the highest one, as a number."""
    wait(shelf.commit(plan(file("net", 9), file("net", 10), file("other", 3))))
    assert shelf.find("net").version == 10
    assert shelf.find("net", "9").version == 9
    assert shelf.find("other").version == 3
    assert shelf.names() == ["net", "other"]
    assert shelf.versions("net") == [9, 10]
    assert shelf.versions("gone") == []
    assert [(model.name, model.version) for model in shelf.models] == [("net", 9), ("net", 10), ("other", 3)]


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("gone", None, "model 'gone': expected a model that is served"),
        ("gone", "1", "model 'gone' version '1': expected a model that is served"),
        ("net", "2", "model 'net' version '2': expected a version that is served, one of 1"),
        ("net", "01", "expected a version that is served"),
        ("net", "", "expected a version that is served"),
        ("../net", None, "expected a model that is served"),
    ],
)
def test_what_is_not_there_is_unknown(
    shelf: ModelRegistry, name: str, version: str | None, says: str
) -> None:
    """The sentence names what was asked for, and never a path."""
    wait(shelf.commit(plan(OLD)))
    with pytest.raises(NotFoundError, match=says) as error:
        shelf.find(name, version)
    assert "secret" not in str(error.value)
    with pytest.raises(NotFoundError):
        shelf.is_ready(name, version)


def test_before_the_first_plan_nothing_is_ready(shelf: ModelRegistry) -> None:
    """Whatever is asked for may yet come."""
    assert not shelf.ready
    with pytest.raises(NotReadyError, match="the models are being loaded"):
        shelf.find("net")
    assert shelf.index() == []
    wait(shelf.prepare(plan(OLD)))
    assert not shelf.ready
    wait(shelf.commit(plan(OLD)))
    assert shelf.ready
    assert shelf.is_ready("net")


def test_an_empty_repository_is_ready(shelf: ModelRegistry) -> None:
    """There is nothing that it should have loaded."""
    wait(shelf.commit(plan()))
    assert shelf.ready


def test_a_repository_of_nothing_but_bad_files_is_not_ready(shelf: ModelRegistry, loader: Loader) -> None:
    """Whether others said so or this worker found out."""
    wait(shelf.commit(plan(failed=(UnavailableModel("net", 1, "its file is damaged"),))))
    assert not shelf.ready
    loader.bad = {OLD}
    wait(shelf.commit(plan(OLD, serial=2)))
    assert not shelf.ready


def test_preparing_leaves_alone_what_is_served(shelf: ModelRegistry, loader: Loader) -> None:
    """The new version is loaded beside the old, in another thread, and found once it is committed."""
    wait(shelf.commit(plan(OLD)), shelf.prepare(plan(NEW, serial=2)))
    assert shelf.find("net").version == 1
    wait(shelf.commit(plan(NEW, serial=2)))
    assert shelf.find("net").version == 2
    assert shelf.versions("net") == [2]
    assert loader.loaded == [OLD, NEW]
    assert threading.get_ident() not in loader.threads


def test_a_bad_file_is_told_and_leaves_the_old(
    shelf: ModelRegistry, loader: Loader, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer has the public reason, the log the whole one."""
    loader.bad = {NEW}
    answer = wait(shelf.commit(plan(OLD)), shelf.prepare(plan(NEW, file("other", 1), serial=2)))
    assert answer == {"failed": [{"name": "net", "version": 2, "reason": "its file is damaged"}]}
    assert shelf.find("net").version == 1
    assert "net/2 is not served: /secret/net/2/model.onnx: onnxruntime says no" in caplog.text


def test_a_bad_file_is_in_the_index_at_once(shelf: ModelRegistry, loader: Loader) -> None:
    """It does not go away between its load and the plan without it, nor while others are prepared."""
    loader.bad = {NEW}
    wait(shelf.commit(plan(OLD)), shelf.prepare(plan(OLD, NEW, serial=2)), shelf.prepare(plan(OLD, serial=2)))
    assert [(one["version"], one["state"]) for one in shelf.index()] == [("1", "READY"), ("2", "UNAVAILABLE")]
    again = file("net", 2, stamp=7)
    loader.bad = {again}
    wait(shelf.prepare(plan(OLD, again, serial=2)))
    assert list(shelf._failed) == [again]
    wait(shelf.commit(plan(OLD, serial=2)))
    assert [one["version"] for one in shelf.index()] == ["1"]


def test_a_loader_that_breaks_is_a_bad_file(shelf: ModelRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises, the worker goes on, and the public reason holds none of it."""

    def broken(found: ModelFile) -> Model:
        raise MemoryError("at 0x7f00")

    shelf._load = broken
    answer = wait(shelf.prepare(plan(OLD)))
    assert answer == {"failed": [{"name": "net", "version": 1, "reason": "it could not be loaded"}]}
    assert "0x7f00" in caplog.text


def test_a_file_is_loaded_once(shelf: ModelRegistry, loader: Loader) -> None:
    """What is served or prepared already is kept; a new file in the same place is another one."""
    both = (OLD, file("other", 1))
    wait(shelf.prepare(plan(*both)), shelf.prepare(plan(*both)), shelf.commit(plan(*both)))
    kept = shelf.find("other")
    wait(shelf.commit(plan(file("net", 1, stamp=7), file("other", 1), serial=2)))
    assert loader.loaded == [OLD, file("other", 1), file("net", 1, stamp=7)]
    assert shelf.find("other") is kept


def test_what_is_served_is_kept_while_others_are_prepared(shelf: ModelRegistry, loader: Loader) -> None:
    """A plan that is given up again does not cost the old model its place."""
    wait(shelf.commit(plan(OLD)), shelf.prepare(plan(NEW, serial=2)), shelf.commit(plan(OLD, serial=3)))
    assert loader.loaded == [OLD, NEW]


def test_files_are_loaded_one_at_a_time(shelf: ModelRegistry, loader: Loader) -> None:
    """Two plans at once do not load side by side."""

    async def both() -> None:
        await asyncio.gather(shelf.prepare(plan(OLD, NEW)), shelf.commit(plan(OLD, NEW, serial=2)))

    asyncio.run(both())
    assert loader.loaded == [OLD, NEW]


def test_what_is_prepared_and_not_wanted_is_let_go(shelf: ModelRegistry, loader: Loader) -> None:
    """A plan that was given up keeps no model in memory."""
    wait(shelf.prepare(plan(OLD, NEW)), shelf.commit(plan(OLD)), shelf.prepare(plan(OLD, NEW, serial=2)))
    assert loader.loaded == [OLD, NEW, NEW]
    wait(shelf.prepare(plan(OLD, serial=2)), shelf.prepare(plan(OLD, NEW, serial=2)))
    assert loader.loaded == [OLD, NEW, NEW, NEW]


def test_an_older_plan_that_comes_late_is_passed_over(shelf: ModelRegistry) -> None:
    """Serials only grow."""
    wait(shelf.commit(plan(NEW, serial=5)), shelf.commit(plan(OLD, serial=4)))
    assert files_of(shelf) == [NEW]


def test_a_late_worker_serves_what_it_can(shelf: ModelRegistry, loader: Loader) -> None:
    """It loads what others have prepared; where that fails, what it has under that name stays."""
    again = file("net", 1, stamp=7)
    loader.bad = {again}
    wait(shelf.commit(plan(OLD, file("other", 1))), shelf.commit(plan(again, file("other", 2), serial=2)))
    assert files_of(shelf) == [OLD, file("other", 2)]
    wait(shelf.commit(plan(again, file("net", 3), serial=3)))
    assert files_of(shelf) == [OLD, file("net", 3)]
    loader.bad = {NEW}
    answer = wait(shelf.commit(plan(NEW, serial=4)))
    assert answer == {"failed": [{"name": "net", "version": 2, "reason": "its file is damaged"}]}
    assert files_of(shelf) == [OLD, file("net", 3)]
    loader.bad = set()
    assert wait(shelf.commit(plan(NEW, serial=5))) == {"failed": []}
    assert files_of(shelf) == [NEW]


LEFT_OUT = (UnavailableModel("away", 1, "unloaded"), UnavailableModel("net", 3, "not chosen by versions=2"))


def test_what_is_there_and_not_served_is_not_ready(shelf: ModelRegistry) -> None:
    """It is known, so it is no 404, and the sentence says why."""
    failed = (
        UnavailableModel("bad", 1, "its file is damaged"),
        UnavailableModel("link", None, "it leaves the repository"),
    )
    wait(shelf.commit(plan(OLD, failed=failed, left_out=LEFT_OUT)))
    for name, version, says in (
        ("bad", None, "model 'bad' is not served: its file is damaged"),
        ("bad", "1", "model 'bad' version '1' is not served: its file is damaged"),
        ("link", None, "it leaves the repository"),
        ("away", None, "model 'away' is not served: unloaded"),
        ("away", "1", "model 'away' version '1' is not served: unloaded"),
        ("net", "3", "model 'net' version '3' is not served: not chosen by versions=2"),
    ):
        with pytest.raises(NotReadyError, match=says):
            shelf.find(name, version)
        assert not shelf.is_ready(name, version)
    for name, version in (("bad", "2"), ("away", "3"), ("net", "2")):
        with pytest.raises(NotFoundError):
            shelf.find(name, version)


def test_the_index_has_everything(shelf: ModelRegistry, loader: Loader) -> None:
    """By name and version, in order, each once, with the reason where it is not served."""
    loader.bad = {file("late", 1)}
    failed = (
        UnavailableModel("net", 10, "its file is damaged"),
        UnavailableModel("link", None, "it leaves the repository"),
        UnavailableModel("net", 2, "its file is damaged"),
    )
    served = (file("net", 9), file("net", 2), file("late", 1))
    wait(shelf.commit(plan(*served, failed=failed, left_out=LEFT_OUT)))
    newer = "an older file is served, the new one is not: its file is damaged"
    damaged = {"state": "UNAVAILABLE", "reason": "its file is damaged"}
    assert shelf.index() == [
        {"name": "away", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "late", "version": "1", **damaged},
        {"name": "link", "version": "", "state": "UNAVAILABLE", "reason": "it leaves the repository"},
        {"name": "net", "version": "2", "state": "READY", "reason": newer},
        {"name": "net", "version": "3", "state": "UNAVAILABLE", "reason": "not chosen by versions=2"},
        {"name": "net", "version": "9", "state": "READY", "reason": ""},
        {"name": "net", "version": "10", **damaged},
    ]


def test_the_index_tells_what_is_being_loaded(shelf: ModelRegistry, loader: Loader) -> None:
    """While it is, and not afterwards."""
    seen: list[Any] = []
    shelf._load = lambda found: seen.extend(shelf.index()) or loader(found)  # type: ignore[func-returns-value]
    wait(shelf.prepare(plan(OLD)))
    assert seen == [{"name": "net", "version": "1", "state": "LOADING", "reason": ""}]
    assert shelf.index() == []


def test_a_request_ends_on_the_model_it_began_with(tmp_path: Path) -> None:
    """However often it is swapped meanwhile; then the old one is gone from memory."""
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    first, second = put(tmp_path, version=1), put(tmp_path, version=2)

    async def swap() -> None:
        shelf = ModelRegistry(opened)
        await shelf.commit(plan(first))
        held = shelf.find("net")
        gone = weakref.ref(held.runtime)
        before = await held.batcher.submit({"x": x}, 3, ("logits",))
        await shelf.commit(plan(second, serial=2))
        after = await held.batcher.submit({"x": x}, 3, ("logits",))
        assert np.array_equal(before.arrays[0], after.arrays[0])
        other = await shelf.find("net").batcher.submit({"x": x}, 3, ("logits",))
        assert not np.array_equal(before.arrays[0], other.arrays[0])
        assert gone() is not None
        del held
        gc.collect()
        assert gone() is None

    asyncio.run(swap())


def test_nothing_is_lost_while_models_are_swapped(tmp_path: Path) -> None:
    """Requests that never stop, a swap at every turn: each is answered by one version or the other."""
    x = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)
    files = [put(tmp_path, version=1), put(tmp_path, version=2)]
    right = [opened(one).runtime.run({"x": np.repeat(x, 2, 0)})[0][:1] for one in files]

    async def storm() -> None:
        shelf = ModelRegistry(opened)
        await shelf.commit(plan(files[0]))
        stop = False
        seen = [0, 0]

        async def ask() -> None:
            while not stop:
                model = shelf.find("net")
                answer = await model.batcher.submit({"x": x}, 1, ("logits",))
                assert np.allclose(answer.arrays[0], right[model.version - 1], atol=1e-6)
                seen[model.version - 1] += 1

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        for serial in range(2, 12):
            await shelf.prepare(plan(files[(serial - 1) % 2], serial=serial))
            await shelf.commit(plan(files[(serial - 1) % 2], serial=serial))
        stop = True
        await asyncio.gather(*asking)
        assert min(seen) > 0

    asyncio.run(storm())


def test_loading_and_failing_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A real file that is damaged: the path is in the log, and in no answer."""
    bad = put(tmp_path, "bad", data=sealed(highway())[:-5])
    with caplog.at_level(logging.INFO):
        answer = wait(ModelRegistry(opened).prepare(plan(put(tmp_path), bad)))
    assert answer == {
        "failed": [{"name": "bad", "version": 1, "reason": "its file is damaged or not an ONNX model"}]
    }
    assert "net/1: loaded" in caplog.text
    assert str(bad.path) in caplog.text
