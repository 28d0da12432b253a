"""Tests of the model registry: find, prepare, and swap without interruption."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.errors import ModelFileError, NotFoundError, NotReadyError, UntriedError
from turnpike.service.registry.model import Model
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.deployment import Deployment, UnavailableModel
from turnpike.service.repository.scan import ModelFile


def file(name: str, version: int, stamp: int = 0) -> ModelFile:
    return ModelFile(name, version, Path(f"/secret/{name}/{version}/model.onnx"), (stamp, stamp, stamp))


def deployment(*files: ModelFile, serial: int = 1, **more: Any) -> dict[str, Any]:
    models: dict[str, tuple[ModelFile, ...]] = {}
    for file in files:
        models[file.name] = (*models.get(file.name, ()), file)
    return Deployment(serial, models, **more).to_json()


class Loader:
    """A fake loader; files in `bad` fail."""

    def __init__(self) -> None:
        self.bad: set[ModelFile] = set()
        self.loaded: list[ModelFile] = []
        self.threads: set[int] = set()
        self.at_once = 0

    def __call__(self, file: ModelFile) -> Model:
        self.at_once += 1
        assert self.at_once == 1
        self.threads.add(threading.get_ident())
        self.loaded.append(file)
        self.at_once -= 1
        if file in self.bad:
            raise ModelFileError(f"{file.path}: onnxruntime says no", "its file is damaged")
        return cast("Model", SimpleNamespace(name=file.name, version=file.version, file=file))


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def registry(loader: Loader) -> ModelRegistry:
    return ModelRegistry(loader)


def run_in_order(*works: Coroutine[Any, Any, Any]) -> Any:
    """Await all in order; return the last result."""

    async def await_in_order() -> Any:
        return [await work for work in works][-1]

    return asyncio.run(await_in_order())


def files_of(registry: ModelRegistry) -> list[ModelFile]:
    return [model.file for model in registry.models]  # type: ignore[attr-defined]


OLD, NEW = file("net", 1), file("net", 2)


def test_models_are_found_by_name_and_version(registry: ModelRegistry) -> None:
    run_in_order(registry.commit(deployment(file("net", 9), file("net", 10), file("other", 3))))
    assert registry.find("net").version == 10
    assert registry.find("net", "9").version == 9
    assert registry.find("other").version == 3
    assert registry.names() == ["net", "other"]
    assert registry.versions("net") == [9, 10]
    assert registry.versions("gone") == []
    assert [(model.name, model.version) for model in registry.models] == [
        ("net", 9),
        ("net", 10),
        ("other", 3),
    ]


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("gone", None, "model 'gone': expected a model that is served"),
        ("gone", "1", "model 'gone' version '1': expected a model that is served"),
        ("net", "2", "model 'net' version '2': expected a version that is served, one of 1"),
        ("net", "01", "expected a version that is served"),
        ("net", "", "expected a version that is served"),
        ("../net", None, "expected a model that is served"),
        ("nets", None, "as /v2/models lists them; did you mean 'net'\\?$"),
        ("absent", None, "as /v2/models lists them$"),
    ],
)
def test_unknown_models_and_versions_are_not_found(
    registry: ModelRegistry, name: str, version: str | None, message: str
) -> None:
    """The message names the model, never a path."""
    run_in_order(registry.commit(deployment(OLD)))
    with pytest.raises(NotFoundError, match=message) as error:
        registry.find(name, version)
    assert "secret" not in str(error.value)
    with pytest.raises(NotFoundError):
        registry.is_ready(name, version)


def test_nothing_is_ready_before_the_first_deployment(registry: ModelRegistry) -> None:
    assert not registry.ready
    with pytest.raises(NotReadyError, match="the models are being loaded"):
        registry.find("net")
    assert registry.index() == []
    run_in_order(registry.prepare(deployment(OLD)))
    assert not registry.ready
    run_in_order(registry.commit(deployment(OLD)))
    assert registry.ready
    assert registry.is_ready("net")


def test_an_empty_repository_is_ready(registry: ModelRegistry) -> None:
    run_in_order(registry.commit(deployment()))
    assert registry.ready


def test_a_repository_with_only_bad_files_is_not_ready(registry: ModelRegistry, loader: Loader) -> None:
    """The deployment says so, or this worker finds out itself."""
    run_in_order(registry.commit(deployment(failed=(UnavailableModel("net", 1, "its file is damaged"),))))
    assert not registry.ready
    loader.bad = {OLD}
    run_in_order(registry.commit(deployment(OLD, serial=2)))
    assert not registry.ready


def test_preparing_does_not_change_served_models(registry: ModelRegistry, loader: Loader) -> None:
    """The new version is loaded in a thread while the old one serves, and is found after commit."""
    run_in_order(registry.commit(deployment(OLD)), registry.prepare(deployment(NEW, serial=2)))
    assert registry.find("net").version == 1
    run_in_order(registry.commit(deployment(NEW, serial=2)))
    assert registry.find("net").version == 2
    assert registry.versions("net") == [2]
    assert loader.loaded == [OLD, NEW]
    assert threading.get_ident() not in loader.threads


def test_a_bad_file_is_reported_and_the_old_one_stays(
    registry: ModelRegistry, loader: Loader, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply has the public reason, the log the full one."""
    loader.bad = {NEW}
    answer = run_in_order(
        registry.commit(deployment(OLD)), registry.prepare(deployment(NEW, file("other", 1), serial=2))
    )
    assert answer["failed"] == [{"name": "net", "version": 2, "reason": "its file is damaged"}]
    assert registry.find("net").version == 1
    assert "net/2 is not served: /secret/net/2/model.onnx: onnxruntime says no" in caplog.text


def test_a_bad_file_is_in_the_index_at_once(registry: ModelRegistry, loader: Loader) -> None:
    """It stays there until the next deployment, also while other models are prepared."""
    loader.bad = {NEW}
    run_in_order(
        registry.commit(deployment(OLD)),
        registry.prepare(deployment(OLD, NEW, serial=2)),
        registry.prepare(deployment(OLD, serial=2)),
    )
    assert [(entry["version"], entry["state"]) for entry in registry.index()] == [
        ("1", "READY"),
        ("2", "UNAVAILABLE"),
    ]
    again = file("net", 2, stamp=7)
    loader.bad = {again}
    run_in_order(registry.prepare(deployment(OLD, again, serial=2)))
    assert list(registry._failed) == [again]
    run_in_order(registry.commit(deployment(OLD, serial=2)))
    assert [entry["version"] for entry in registry.index()] == ["1"]


def test_an_unexpected_loader_error_counts_as_a_bad_file(
    registry: ModelRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker continues, and the public reason has no detail of the error."""

    def broken(file: ModelFile) -> Model:
        raise MemoryError("at 0x7f00")

    registry._load = broken
    answer = run_in_order(registry.prepare(deployment(OLD)))
    assert answer["failed"] == [{"name": "net", "version": 1, "reason": "it could not be loaded"}]
    assert "0x7f00" in caplog.text


def test_a_file_is_loaded_once(registry: ModelRegistry, loader: Loader) -> None:
    """Loaded files are reused; a new file at the same path counts as another one."""
    both = (OLD, file("other", 1))
    run_in_order(
        registry.prepare(deployment(*both)),
        registry.prepare(deployment(*both)),
        registry.commit(deployment(*both)),
    )
    kept = registry.find("other")
    run_in_order(registry.commit(deployment(file("net", 1, stamp=7), file("other", 1), serial=2)))
    assert loader.loaded == [OLD, file("other", 1), file("net", 1, stamp=7)]
    assert registry.find("other") is kept


def test_served_models_are_kept_while_others_are_prepared(registry: ModelRegistry, loader: Loader) -> None:
    run_in_order(
        registry.commit(deployment(OLD)),
        registry.prepare(deployment(NEW, serial=2)),
        registry.commit(deployment(OLD, serial=3)),
    )
    assert loader.loaded == [OLD, NEW]


def test_files_are_loaded_one_at_a_time(registry: ModelRegistry, loader: Loader) -> None:

    async def both() -> None:
        await asyncio.gather(
            registry.prepare(deployment(OLD, NEW)), registry.commit(deployment(OLD, NEW, serial=2))
        )

    asyncio.run(both())
    assert loader.loaded == [OLD, NEW]


def test_prepared_models_that_are_not_committed_are_freed(registry: ModelRegistry, loader: Loader) -> None:
    run_in_order(
        registry.prepare(deployment(OLD, NEW)),
        registry.commit(deployment(OLD)),
        registry.prepare(deployment(OLD, NEW, serial=2)),
    )
    assert loader.loaded == [OLD, NEW, NEW]
    run_in_order(
        registry.prepare(deployment(OLD, serial=2)), registry.prepare(deployment(OLD, NEW, serial=2))
    )
    assert loader.loaded == [OLD, NEW, NEW, NEW]


def test_a_late_older_deployment_is_ignored(registry: ModelRegistry) -> None:
    run_in_order(registry.commit(deployment(NEW, serial=5)), registry.commit(deployment(OLD, serial=4)))
    assert files_of(registry) == [NEW]


def test_a_deployment_committed_again_loads_what_failed(registry: ModelRegistry, loader: Loader) -> None:
    """A worker that starts late commits until nothing fails, so the same deployment must not be ignored."""
    loader.bad = {NEW}
    (failure,) = run_in_order(registry.commit(deployment(NEW)))["failed"]
    assert failure["version"] == NEW.version
    loader.bad = set()
    assert run_in_order(registry.commit(deployment(NEW))) == {"failed": []}
    assert files_of(registry) == [NEW]


def test_a_late_worker_serves_the_files_it_can_load(registry: ModelRegistry, loader: Loader) -> None:
    """If a file cannot be loaded, the model that is served under its name stays."""
    again = file("net", 1, stamp=7)
    loader.bad = {again}
    run_in_order(
        registry.commit(deployment(OLD, file("other", 1))),
        registry.commit(deployment(again, file("other", 2), serial=2)),
    )
    assert files_of(registry) == [OLD, file("other", 2)]
    run_in_order(registry.commit(deployment(again, file("net", 3), serial=3)))
    assert files_of(registry) == [OLD, file("net", 3)]
    loader.bad = {NEW}
    answer = run_in_order(registry.commit(deployment(NEW, serial=4)))
    assert answer == {"failed": [{"name": "net", "version": 2, "reason": "its file is damaged"}]}
    assert files_of(registry) == [OLD, file("net", 3)]
    loader.bad = set()
    assert run_in_order(registry.commit(deployment(NEW, serial=5))) == {"failed": []}
    assert files_of(registry) == [NEW]


LEFT_OUT = (
    UnavailableModel("away", 1, "unloaded"),
    UnavailableModel("net", 3, "--versions 2 serves version 2"),
)


def test_models_that_are_not_served_are_not_ready(registry: ModelRegistry) -> None:
    """The answer is 503 with the reason, not 404."""
    failed = (
        UnavailableModel("bad", 1, "its file is damaged"),
        UnavailableModel("link", None, "it leaves the repository"),
    )
    run_in_order(registry.commit(deployment(OLD, failed=failed, left_out=LEFT_OUT)))
    for name, version, message in (
        ("bad", None, "model 'bad' is not served: its file is damaged"),
        ("bad", "1", "model 'bad' version '1' is not served: its file is damaged"),
        ("link", None, "it leaves the repository"),
        ("away", None, "model 'away' is not served: unloaded"),
        ("away", "1", "model 'away' version '1' is not served: unloaded"),
        ("net", "3", "model 'net' version '3' is not served: --versions 2 serves version 2"),
    ):
        with pytest.raises(NotReadyError, match=message):
            registry.find(name, version)
        assert not registry.is_ready(name, version)
    for name, version in (("bad", "2"), ("away", "3"), ("net", "2")):
        with pytest.raises(NotFoundError):
            registry.find(name, version)


def test_the_index_has_all_models_with_state_and_reason(registry: ModelRegistry, loader: Loader) -> None:
    loader.bad = {file("late", 1)}
    failed = (
        UnavailableModel("net", 10, "its file is damaged"),
        UnavailableModel("link", None, "it leaves the repository"),
        UnavailableModel("net", 2, "its file is damaged"),
    )
    served = (file("net", 9), file("net", 2), file("late", 1))
    run_in_order(registry.commit(deployment(*served, failed=failed, left_out=LEFT_OUT)))
    newer = "an older file is served, the new one is not: its file is damaged"
    damaged = {"state": "UNAVAILABLE", "reason": "its file is damaged"}
    assert registry.index() == [
        {"name": "away", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "late", "version": "1", **damaged},
        {"name": "link", "version": "", "state": "UNAVAILABLE", "reason": "it leaves the repository"},
        {"name": "net", "version": "2", "state": "READY", "reason": newer},
        {"name": "net", "version": "3", "state": "UNAVAILABLE", "reason": "--versions 2 serves version 2"},
        {"name": "net", "version": "9", "state": "READY", "reason": ""},
        {"name": "net", "version": "10", **damaged},
    ]


def test_the_index_has_models_that_are_being_loaded(registry: ModelRegistry, loader: Loader) -> None:
    seen: list[Any] = []
    registry._load = lambda file: seen.extend(registry.index()) or loader(file)  # type: ignore[func-returns-value]
    run_in_order(registry.prepare(deployment(OLD)))
    assert seen == [{"name": "net", "version": "1", "state": "LOADING", "reason": ""}]
    assert registry.index() == []


class BlockedLoader(Loader):
    """A fake loader; files in `slow` wait until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: set[ModelFile] = set()
        self.waiting: set[ModelFile] = set()
        self.release = threading.Event()

    def __call__(self, file: ModelFile) -> Model:
        if file in self.slow:
            self.waiting.add(file)
            self.release.wait(10)
            self.waiting.discard(file)
        return super().__call__(file)


@pytest.fixture
def blocked() -> Iterator[BlockedLoader]:
    loader = BlockedLoader()
    yield loader
    loader.release.set()


def test_preparing_does_not_wait_for_a_slow_file(blocked: BlockedLoader) -> None:
    """The others are loaded beside it and can be served. A later call has what became of it."""
    slow, bad, other = file("a", 1), file("b", 1), file("c", 1)
    blocked.slow, blocked.bad = {slow, bad}, {bad}

    async def prepare() -> None:
        registry = ModelRegistry(blocked, prepare_seconds=0.2, slow_seconds=0.001)
        answer = await registry.prepare(deployment(slow, bad, other))
        assert answer["failed"] == []
        assert sorted(answer["loading"]) == [["a", 1], ["b", 1]]
        await registry.commit(deployment(other, loading=(slow, bad), complete=False))
        assert files_of(registry) == [other]
        assert [(entry["name"], entry["state"]) for entry in registry.index()] == [
            ("a", "LOADING"), ("b", "LOADING"), ("c", "READY"),
        ]  # fmt: skip
        with pytest.raises(NotReadyError, match="model 'a' is not served yet: it is being loaded"):
            registry.find("a")
        blocked.release.set()
        failed = set()
        while (answer := await registry.prepare(deployment(slow, bad, other, serial=2)))["loading"]:
            failed |= {model["name"] for model in answer["failed"]}
        assert failed | {model["name"] for model in answer["failed"]} == {"b"}
        await registry.commit(deployment(slow, other, serial=2))
        assert files_of(registry) == [slow, other]
        assert blocked.loaded.count(slow) == 1

    asyncio.run(prepare())


def test_a_load_that_never_ends_does_not_keep_the_worker(blocked: BlockedLoader) -> None:
    """The event loop ends without it, while the thread still loads."""
    blocked.slow = {OLD}
    registry = ModelRegistry(blocked, prepare_seconds=0.001)
    answer = run_in_order(registry.prepare(deployment(OLD)))
    assert answer["loading"] == [["net", 1]]
    assert blocked.waiting == {OLD}


def test_a_file_that_needs_a_trial_has_not_failed(
    registry: ModelRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """It is loaded once it has passed."""
    load = registry._load

    def refuse(file: ModelFile) -> Model:
        if not file.tried:
            raise UntriedError("expected a trial")
        return load(file)

    registry._load = refuse
    answer = run_in_order(registry.prepare(deployment(OLD)))
    assert answer == {"failed": [], "untried": [["net", 1]], "loading": []}
    assert registry.index() == []
    assert caplog.messages == []
    tried = replace(OLD, tried=True)
    assert run_in_order(registry.prepare(deployment(tried)))["untried"] == []
    run_in_order(registry.commit(deployment(tried)))
    assert files_of(registry) == [OLD]


def test_the_reason_of_not_being_ready_is_short(registry: ModelRegistry, loader: Loader) -> None:
    """It names the first three files, unless the caller may not know them."""
    assert registry.unready_reason() == "the first scan is not complete"
    many = [file(name, 1) for name in "edcba"]
    run_in_order(registry.commit(deployment(file("f", 1), loading=tuple(many), complete=False)))
    assert registry.is_ready("f")
    assert not registry.ready
    assert registry.unready_reason() == "the first scan is not complete: loading a/1, b/1, c/1 and 2 more"
    assert registry.unready_reason(naming=False) == "the first scan is not complete"
    failed = (UnavailableModel("link", None, "it leaves the repository"),)
    loader.bad = {OLD}
    run_in_order(registry.commit(deployment(OLD, serial=2, failed=failed)))
    assert registry.unready_reason() == (
        "no model is served: link: it leaves the repository, net/1: its file is damaged"
    )
    assert registry.unready_reason(naming=False) == (
        "no model is served: it leaves the repository, its file is damaged"
    )
    run_in_order(registry.commit(deployment(NEW, serial=3, failed=failed, loading=tuple(many))))
    assert registry.unready_reason() is None


def test_a_request_keeps_its_model_during_a_swap(tmp_path: Path) -> None:
    """The old model is freed after its last request."""
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    first, second = put_model(tmp_path, version=1), put_model(tmp_path, version=2)

    async def swap() -> None:
        registry = ModelRegistry(load_model)
        await registry.commit(deployment(first))
        held = registry.find("net")
        gone = weakref.ref(held.runtime)
        before = await held.batcher.submit({"x": x}, 3, ("logits",))
        await registry.commit(deployment(second, serial=2))
        after = await held.batcher.submit({"x": x}, 3, ("logits",))
        assert np.array_equal(before.arrays[0], after.arrays[0])
        other = await registry.find("net").batcher.submit({"x": x}, 3, ("logits",))
        assert not np.array_equal(before.arrays[0], other.arrays[0])
        assert gone() is not None
        del held
        gc.collect()
        assert gone() is None

    asyncio.run(swap())


def test_no_request_is_lost_while_models_are_swapped(tmp_path: Path) -> None:
    """Each request is answered by one version or the other."""
    x = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)
    files = [put_model(tmp_path, version=1), put_model(tmp_path, version=2)]
    right = [load_model(file).runtime.run({"x": np.repeat(x, 2, 0)})[0][:1] for file in files]

    async def storm() -> None:
        registry = ModelRegistry(load_model)
        await registry.commit(deployment(files[0]))
        stop = False
        seen = [0, 0]

        async def ask() -> None:
            while not stop:
                model = registry.find("net")
                answer = await model.batcher.submit({"x": x}, 1, ("logits",))
                assert np.allclose(answer.arrays[0], right[model.version - 1], atol=1e-6)
                seen[model.version - 1] += 1

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        for serial in range(2, 12):
            await registry.prepare(deployment(files[(serial - 1) % 2], serial=serial))
            await registry.commit(deployment(files[(serial - 1) % 2], serial=serial))
        stop = True
        await asyncio.gather(*asking)
        assert min(seen) > 0

    asyncio.run(storm())


def test_loading_and_failing_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The path of a damaged file is in the log and in no response."""
    bad = put_model(tmp_path, "bad", data=with_manifest(highway())[:-5])
    with caplog.at_level(logging.INFO):
        answer = run_in_order(ModelRegistry(load_model).prepare(deployment(put_model(tmp_path), bad)))
    assert answer["failed"] == [
        {"name": "bad", "version": 1, "reason": "its file is damaged or not an ONNX model"}
    ]
    assert "net/1: loaded" in caplog.text
    assert str(bad.path) in caplog.text
