"""Models loaded and unloaded by request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.rollout_workers import Workers, run, start, write
from turnpike.service.repository.deployment import UnavailableModel
from turnpike.service.repository.scan import MODEL_FILE


def test_an_unloaded_model_stays_unloaded_until_it_is_loaded(tmp_path: Path, workers: Workers) -> None:
    """Scans do not load it."""
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
    assert workers.committed.left_out == (UnavailableModel("net", 1, "--versions latest serves version 2"),)


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
    """Served models stay."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    assert run(rollout.load("net")) == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: its file is damaged; version 1 is still served",
    }
    assert rollout.names == ["net/1"]


def test_a_served_file_that_is_replaced_by_a_bad_one_fails_to_load(tmp_path: Path, workers: Workers) -> None:
    """The version is the one that is served."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 1, b"bad")
    reason = run(rollout.load("net"))["reason"]
    assert reason == "model 'net' cannot be loaded: its file is damaged; version 1 is still served"
    assert rollout.names == ["net/1"]


def test_the_log_says_why_a_repository_cannot_be_read(
    tmp_path: Path, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not see the path."""
    write(tmp_path / "models", "net", 1)
    rollout = start(tmp_path / "models", workers)
    (tmp_path / "models").rename(tmp_path / "elsewhere")
    answer = run(rollout.load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: the repository cannot be read"
    assert str(tmp_path / "models") in caplog.text
    assert rollout.names == ["net/1"]


def test_a_load_that_falls_back_to_an_older_version_succeeds(tmp_path: Path, workers: Workers) -> None:
    """The answer is about served models. The index shows that the newest file is bad."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    rollout = start(tmp_path, workers)
    run(rollout.unload("net"))
    assert workers.committed.failed == ()
    assert run(rollout.load("net")) == {"ok": True}
    assert rollout.names == ["net/1"]
    assert rollout.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_load_that_changes_anything_succeeds(tmp_path: Path, workers: Workers) -> None:
    """Another version may fail, or an older one may have been unusable before."""
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
    """It is the reason of the newest file."""
    write(tmp_path, "net", 3, b"bad")
    (tmp_path / "net" / "2" / MODEL_FILE).mkdir(parents=True)
    answer = run(start(tmp_path, workers).load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: its file is damaged"


def test_a_load_of_versions_outside_of_the_policy_is_refused(tmp_path: Path, workers: Workers) -> None:
    """The file is good, but the setting leaves it out."""
    write(tmp_path, "net", 1)
    answer = run(start(tmp_path, workers, "2").load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: none of its versions is among those to serve"


def test_loads_unloads_and_scans_are_done_in_sequence(tmp_path: Path, workers: Workers) -> None:
    """They are requested at the same time."""
    for name in ("one", "two", "three"):
        write(tmp_path, name, 1)
    rollout = start(tmp_path, workers)
    busy = False
    broadcast = workers.broadcast

    async def slow(name: str, argument: Any) -> list[Any]:
        nonlocal busy
        assert not busy
        busy = True
        await asyncio.sleep(0.001)
        busy = False
        return await broadcast(name, argument)

    async def all_at_once() -> None:
        rollout._broadcast = slow
        await asyncio.gather(
            rollout.unload("one"), rollout.load("one"), rollout.rescan(), rollout.unload("two")
        )

    asyncio.run(all_at_once())
    assert rollout.names == ["one/1", "three/1"]
