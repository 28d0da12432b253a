"""Files are replaced completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from models.atomic import replacing


def files(folder: Path) -> dict[str, str]:
    """Every file in a folder, including hidden ones, with its content."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("old", [None, "old"])
def test_the_draft_replaces_the_file(tmp_path: Path, old: str | None) -> None:
    """This happens at the end of the block, with or without an old file. No other file is left."""
    path = tmp_path / "model.safetensors"
    if old is not None:
        path.write_text(old)
    with replacing(path) as draft:
        draft.write_text("new")
        assert path.exists() == (old is not None)
        if old is not None:
            assert path.read_text() == old
    assert files(tmp_path) == {"model.safetensors": "new"}


def test_the_draft_is_in_the_folder_of_its_file(tmp_path: Path) -> None:
    """It can be renamed there. It is hidden, and has the same suffix and a unique name."""
    path = tmp_path / "plot.png"
    with replacing(path) as first, replacing(path) as second:
        assert first.parent == second.parent == tmp_path
        assert first.suffix == ".png"
        assert first.name.startswith(".")
        assert len({first, second, path}) == 3
        first.write_text("1")
        second.write_text("2")
    assert files(tmp_path) == {"plot.png": "1"}


def test_the_draft_is_flushed_before_it_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete draft is flushed to disk while the old file is still there."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    flushed: list[tuple[int, str]] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append((os.fstat(file).st_size, path.read_text())))
    with replacing(path) as draft:
        draft.write_text("newer")
    assert flushed == [(5, "old")]
    assert files(tmp_path) == {"a.txt": "newer"}


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("begun", [False, True])
def test_an_error_keeps_the_old_file(
    tmp_path: Path, error: type[BaseException], old: str | None, begun: bool
) -> None:
    """The error reaches the caller, and no draft is left behind."""
    path = tmp_path / "last.json"
    if old is not None:
        path.write_text(old)

    def write(draft: Path) -> None:
        if begun:
            draft.write_text("half of it")
        raise error

    with pytest.raises(error), replacing(path) as draft:
        write(draft)
    assert files(tmp_path) == ({} if old is None else {"last.json": old})


def test_missing_folders_are_created(tmp_path: Path) -> None:
    with replacing(tmp_path / "runs" / "a" / "log.txt") as draft:
        draft.write_text("x")
    assert files(tmp_path) == {str(Path("runs", "a", "log.txt")): "x"}


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    """There is nothing to replace the old file with, so it stays."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert files(tmp_path) == {"a.txt": "old"}


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    """If the rename fails because a folder has the name, no draft is left either."""
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError), replacing(tmp_path / "a.txt") as draft:  # noqa: PT011
        draft.write_text("new")
    assert files(tmp_path) == {}
    assert (tmp_path / "a.txt").is_dir()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_file_permissions_follow_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    """Some libraries create files that only their owner can read."""
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "file") as draft:
            draft.touch(mode=0o600)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
