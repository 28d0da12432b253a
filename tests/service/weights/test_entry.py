"""Entries: when their files are read, and what makes them invalid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnpike.service.low_priority import call_directly
from turnpike.service.weights import entry as entry_module
from turnpike.service.weights.entry import DIGESTS, FILES, STAMP, WEIGHTS, Entry

HOUR_NS = 3600 * 10**9


def later() -> int:
    """An hour from now: files that were just written have not changed for long."""
    return time.time_ns() + HOUR_NS


class Reads:
    """Counts the files that are read whole."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self.count += 1
        return function(*args)


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    folder = tmp_path / "entry"
    folder.mkdir(mode=0o700)
    for number, name in enumerate(FILES):
        (folder / name).write_bytes(bytes([number]) * 10_000)
    entry = Entry(folder)
    entry.seal()
    return entry


def test_sealed_files_are_private(entry: Entry) -> None:
    assert {path.stat().st_mode & 0o777 for path in entry.folder.iterdir()} == {0o600}


def test_files_are_read_until_a_stamp_holds(entry: Entry) -> None:
    """Files that were written just now get no stamp: a change in the same moment would not show."""
    reads = Reads()
    for _ in range(2):
        assert entry.is_intact(reads)
    assert reads.count == 2 * len(FILES)
    assert entry.is_intact(reads, later)
    assert reads.count == 3 * len(FILES)
    for _ in range(2):
        assert entry.is_intact(reads)
    assert reads.count == 3 * len(FILES)


def test_a_stamp_ends_with_a_start_of_the_machine(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power may have damaged files. A system without names of starts gets no trust."""
    assert entry.is_intact(call_directly, later)
    for boot in ("another", None):
        monkeypatch.setattr(entry_module, "boot_id", lambda boot=boot: boot)
        for _ in range(2):
            reads = Reads()
            assert entry.is_intact(reads)
            assert reads.count == len(FILES)


def test_a_touched_file_is_read_again(entry: Entry) -> None:
    assert entry.is_intact(call_directly, later)
    os.utime(entry.folder / WEIGHTS)
    reads = Reads()
    assert entry.is_intact(reads)
    assert reads.count == len(FILES)


@pytest.mark.parametrize("name", [*FILES, DIGESTS])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "link", "writable"])
def test_damage_is_noticed(entry: Entry, name: str, damage: str) -> None:
    """With a stamp, and although the time of the last change is set back."""
    assert entry.is_intact(call_directly, later)
    path = entry.folder / name
    content, times = path.read_bytes(), path.stat()
    if damage == "flip":
        with path.open("r+b") as opened:
            opened.write(bytes([content[0] ^ 1]))
    elif damage == "cut":
        os.truncate(path, len(content) - 1)
    elif damage == "writable":
        path.chmod(0o620)
    else:
        path.rename(entry.folder / "moved")
    if damage == "link":
        path.symlink_to(entry.folder / "moved")
    if path.exists():
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not entry.is_intact(call_directly, later)


def test_an_entry_that_others_may_open_is_not_used(entry: Entry) -> None:
    entry.folder.chmod(0o755)
    assert not entry.is_intact(call_directly)


def test_a_file_that_changes_while_it_is_read_is_noticed(entry: Entry) -> None:
    def change(function: Callable[..., Any], /, *args: Any) -> Any:
        digest = function(*args)
        (entry.folder / WEIGHTS).write_bytes(b"")
        return digest

    assert not entry.is_intact(change, later)
    assert not (entry.folder / STAMP).exists()


def test_facts_are_read_back(entry: Entry) -> None:
    assert entry.read_fact("a") is None
    entry.write_fact("a", {"ran": True})
    assert entry.read_fact("a") == {"ran": True}
    assert entry.is_intact(call_directly)
