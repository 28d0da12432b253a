"""The folder of the cache: locks, drafts, room, removal, and when there is none."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest

from turnpike.service.config.settings import Settings
from turnpike.service.low_priority import call_directly
from turnpike.service.weights import cache as cache_module
from turnpike.service.weights import private_files
from turnpike.service.weights.cache import DRAFT, RETRY_SECONDS, TRASH, WeightsCache, cache_problem
from turnpike.service.weights.entry import FILES, Entry
from turnpike.service.weights.private_files import UntrustedError

SIZE = 30_000


@pytest.fixture
def cache(tmp_path: Path) -> WeightsCache:
    return WeightsCache(tmp_path / "cache", 100_000, "a CPU", lock_seconds=0)


def model(tmp_path: Path, name: str = "model.onnx") -> Path:
    path = tmp_path / name
    path.write_bytes(name.encode())
    return path


def fill(draft: Entry, size: int = SIZE) -> None:
    for name in FILES:
        (draft.folder / name).write_bytes(bytes(size // len(FILES)))


def add(cache: WeightsCache, path: Path, digest: str, size: int = SIZE) -> str:
    """Prepare a model; returns the name of its entry."""
    name = f"{digest}-x"
    with cache.slot(path) as slot:
        assert slot is not None
        slot.remember(digest)
        with cache.draft(slot, name, size // 3) as draft:
            assert draft is not None
            fill(draft, size)
            cache.publish(draft, name)
    return name


def names(cache: WeightsCache) -> set[str]:
    return {path.name for path in cache.entries.iterdir()}


def test_an_entry_is_found_by_its_name(tmp_path: Path, cache: WeightsCache) -> None:
    assert cache.find("a-x") is None
    name = add(cache, model(tmp_path), "a")
    entry = cache.find(name)
    assert entry is not None
    assert entry.is_intact(call_directly)
    assert names(cache) == {name}


def test_every_folder_is_private(tmp_path: Path, cache: WeightsCache) -> None:
    add(cache, model(tmp_path), "a")
    paths = list((tmp_path / "cache").rglob("*"))
    assert len(paths) > 8
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "cache", *paths]} == {0}


def test_the_digest_of_a_settled_file_is_known(tmp_path: Path, cache: WeightsCache) -> None:
    """Until it changes. A file that was written just now is read again."""
    path = model(tmp_path)
    for settled_ns, known in ((private_files.SETTLED_NS, None), (-(10**12), "a")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(private_files, "SETTLED_NS", settled_ns)
            with cache.slot(path) as slot:
                assert slot is not None
                assert slot.digest is None
                slot.remember("a")
                assert slot.digest == known
    with cache.slot(path) as slot:
        assert slot is not None
        assert slot.digest == "a"
    os.utime(path)
    with cache.slot(path) as slot:
        assert slot is not None
        assert slot.digest is None


def test_one_process_has_a_file_at_a_time(tmp_path: Path, cache: WeightsCache) -> None:
    path = model(tmp_path)
    with cache.slot(path) as slot, cache.slot(path) as second:
        assert slot is not None
        assert second is None
    with cache.slot(path) as slot:
        assert slot is not None


def test_others_wait_for_a_file(tmp_path: Path) -> None:
    cache = WeightsCache(tmp_path / "cache", 100_000, "a CPU", lock_seconds=30)
    path = model(tmp_path)
    order = []

    def load() -> None:
        with cache.slot(path) as slot:
            assert slot is not None
            order.append("second")

    with cache.slot(path):
        thread = threading.Thread(target=load)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_failed_draft_leaves_nothing(tmp_path: Path, cache: WeightsCache) -> None:
    def cut() -> None:
        with cache.slot(model(tmp_path)) as slot:
            assert slot is not None
            with cache.draft(slot, "a-x", 10) as draft:
                assert draft is not None
                fill(draft)
                assert names(cache) == {f"{DRAFT}{slot.key}"}
                raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        cut()
    assert names(cache) == set()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, cache: WeightsCache) -> None:
    """By the next that prepares the same file, and by any that looks for unused entries."""
    path = model(tmp_path)
    with cache.slot(path) as slot:
        assert slot is not None
        left = cache.entries / f"{DRAFT}{slot.key}"
        left.mkdir()
        (left / "old").touch()
        with cache.draft(slot, "a-x", 10) as draft:
            assert draft is not None
            assert not list(draft.folder.iterdir())
    for name in (left.name, f"{TRASH}1"):
        (cache.entries / name).mkdir()
    with cache.slot(path):
        cache.remove_unused()
        assert names(cache) == {left.name}
    cache.remove_unused()
    assert names(cache) == set()


def test_the_entries_that_were_not_used_for_long_make_room(tmp_path: Path, cache: WeightsCache) -> None:
    entries = {digest: add(cache, model(tmp_path, digest), digest) for digest in "abc"}
    for age, digest in enumerate("bca"):
        os.utime(cache.entries / entries[digest], ns=(0, (age + 1) * 10**9))
    entry = cache.find(entries["b"])
    assert entry is not None
    entry.touch()
    added = add(cache, model(tmp_path, "d"), "d")
    assert names(cache) == {entries["a"], entries["b"], added}


def test_a_model_that_is_too_large_is_not_prepared(
    tmp_path: Path, cache: WeightsCache, caplog: pytest.LogCaptureFixture
) -> None:
    kept = add(cache, model(tmp_path), "a")
    with caplog.at_level(logging.INFO), cache.slot(model(tmp_path, "large")) as slot:
        assert slot is not None
        with cache.draft(slot, "b-x", 50_000) as draft:
            assert draft is None
    assert "--weights-cache allows less" in caplog.text
    assert names(cache) == {kept}


def test_a_disk_is_never_filled(
    tmp_path: Path,
    cache: WeightsCache,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of what is free stays free."""

    class Usage:
        free = 50_000

    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: Usage)
    with caplog.at_level(logging.INFO), cache.slot(model(tmp_path)) as slot:
        assert slot is not None
        for size, fits in ((10_000, True), (20_000, False)):
            with cache.draft(slot, "a-x", size) as draft:
                assert (draft is not None) == fits
    assert "is full" in caplog.text


def test_a_model_that_cannot_be_prepared_is_given_up(
    tmp_path: Path, cache: WeightsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an hour. A success ends that."""

    def can_be_tried() -> bool:
        with cache.slot(path) as slot, cache.draft(slot, "a-x", 10) as draft:  # type: ignore[arg-type]
            return draft is not None

    path = model(tmp_path)
    assert can_be_tried()
    cache.give_up("a-x")
    assert not can_be_tried()
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(cache_module.time, "time", lambda: now + RETRY_SECONDS + 1)
        add(cache, path, "a")
    assert can_be_tried()


def test_entries_go_with_their_model(tmp_path: Path, cache: WeightsCache) -> None:
    """An entry stays as long as any file has its content."""
    first, copy, other = (model(tmp_path, name) for name in ("first", "copy", "other"))
    kept = add(cache, other, "b")
    shared = add(cache, first, "a")
    with cache.slot(copy) as slot:
        assert slot is not None
        slot.remember("a")
    cache.give_up("a-y")
    first.unlink()
    cache.remove_unused()
    assert names(cache) == {kept, shared}
    copy.unlink()
    cache.remove_unused()
    assert names(cache) == {kept}
    assert len(list(cache.files.iterdir())) == 1
    assert not list((tmp_path / "cache" / "unfit").iterdir())


def test_the_entry_of_the_old_content_goes_when_a_file_is_replaced(
    tmp_path: Path, cache: WeightsCache
) -> None:
    path = model(tmp_path)
    add(cache, path, "a")
    new = add(cache, path, "b")
    cache.remove_unused()
    assert names(cache) == {new}


def test_damaged_records_do_no_harm(tmp_path: Path, cache: WeightsCache) -> None:
    path = model(tmp_path)
    add(cache, path, "a")
    for record in cache.files.iterdir():
        record.write_bytes(b"{")
    with cache.slot(path) as slot:
        assert slot is not None
        assert slot.digest is None
    cache.remove_unused()
    assert names(cache) == set()


def test_settings_may_turn_it_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path / "cache"))
    for settings in (Settings(weights_cache=0), Settings(device="cuda")):
        assert WeightsCache.from_settings(settings) is None
        assert cache_problem(settings) is None
    assert cache_problem(Settings()) is None
    assert not (tmp_path / "cache").exists()
    assert WeightsCache.from_settings(Settings()) is not None
    assert (tmp_path / "cache" / "weights" / "entries").is_dir()
    assert cache_problem(Settings()) is None


def test_a_folder_that_cannot_be_used_is_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "weights").write_bytes(b"")
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path))
    with caplog.at_level(logging.INFO):
        assert WeightsCache.from_settings(Settings()) is None
    problem = cache_problem(Settings())
    assert problem == f"{tmp_path}/weights cannot be written (File exists)"
    assert caplog.messages == [f"workers do not share weights: {problem}"]


def test_a_folder_that_cannot_be_made_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is known before a model needs the folder."""
    (tmp_path / "file").touch()
    for cache, problem in (
        (tmp_path / "file", f"{tmp_path}/file is a file"),
        (Path("/proc/cache"), "no file can be made in /proc"),
    ):
        monkeypatch.setenv("TURNPIKE_CACHE", str(cache))
        assert str(cache_problem(Settings())).startswith(problem)


def test_a_folder_of_others_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights").chmod(0o777)
    assert cache_problem(Settings()) == f"other users may open {tmp_path}/weights: chmod 700 closes it"


def test_no_home_and_no_cpu_are_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless(_: str) -> Path:
        raise RuntimeError

    monkeypatch.setattr(cache_module, "cache_folder", homeless)
    assert cache_problem(Settings()) == "there is no home folder: set TURNPIKE_CACHE"
    monkeypatch.setattr(cache_module, "cpu_description", lambda: None)
    assert cache_problem(Settings()) == "the system does not say what its CPU can do"


def test_a_folder_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "network_file_system", lambda _: "nfs4")
    with pytest.raises(UntrustedError, match=r"cache is on a network \(nfs4\)"):
        WeightsCache(tmp_path / "cache", 1, "a CPU")
