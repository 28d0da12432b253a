"""Files are replaced completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_cli import environment
from turnpike.common.durable_files import (
    WriteError,
    move_durably,
    replacing,
    replacing_all,
    write_texts,
    writing_problem,
)


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


def test_the_draft_and_its_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The complete draft before it replaces the old file, and then every folder with a new name in it."""
    path = tmp_path / "a" / "b" / "c.txt"
    flushed: list[tuple[Path, str | None]] = []

    def fsync(descriptor: int) -> None:
        file = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append((file, path.read_text() if path.exists() else None))
        assert file.is_dir() or file.read_text() in ("old", "newer")

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path) as first:
        first.write_text("old")
    with replacing(path) as second:
        second.write_text("newer")
    folders = (path.parent, path.parent.parent, tmp_path)
    assert flushed == [
        (first, None),
        *((folder, "old") for folder in folders),
        (second, "old"),
        (path.parent, "newer"),
    ]


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
    with pytest.raises(WriteError, match="a.txt: cannot be written .No such file"), replacing(path):
        pass
    assert files(tmp_path) == {"a.txt": "old"}


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    """If the rename fails because a folder has the name, no draft is left either."""
    (tmp_path / "a.txt").mkdir()
    with (
        pytest.raises(WriteError, match="a.txt: cannot be written .Is a directory"),
        replacing(tmp_path / "a.txt") as draft,
    ):
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


def test_the_umask_is_never_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the whole process: another thread would create its files with it."""

    def fail(mask: int) -> int:
        raise AssertionError(f"set to {mask:o}")

    monkeypatch.setattr(os, "umask", fail)
    with replacing(tmp_path / "file") as draft:
        draft.write_text("text")
    assert files(tmp_path) == {"file": "text"}


def failing(method: Callable[..., Any], number: int, condition: Callable[[Any], bool]) -> Callable[..., Any]:
    """The method, which fails with an error of the system if its first argument fulfills the condition."""

    def call(first: Any, *arguments: Any, **options: Any) -> Any:
        if condition(first):
            raise OSError(number, os.strerror(number))
        return method(first, *arguments, **options)

    return call


def is_folder(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_dir()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(
    ("owner", "name", "condition", "kept"),
    [
        (Path, "write_text", lambda draft: True, "old"),
        (Path, "chmod", lambda draft: True, "old"),
        (os, "fsync", lambda descriptor: not is_folder(descriptor), "old"),
        (Path, "replace", lambda draft: True, "old"),
        (os, "fsync", is_folder, "new"),
    ],
)
def test_a_failing_disk_leaves_the_old_file_or_the_new_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    owner: Any,
    name: str,
    condition: Callable[[Any], bool],
    kept: str,
) -> None:
    """Whichever call fails, the error names the file and the reason, and no draft is left."""
    path = tmp_path / "model.onnx"
    path.write_text("old")
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), number, condition))
    message = f"^{re.escape(str(path))}: cannot be written .{os.strerror(number)}.$"
    with pytest.raises(WriteError, match=message), replacing(path) as draft:
        draft.write_text("new")
    assert files(tmp_path) == {"model.onnx": kept}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, number, is_folder))
    with replacing(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    (tmp_path / "draft").write_text("new")
    move_durably(tmp_path / "draft", tmp_path / "b.txt")
    assert files(tmp_path) == {"a.txt": "new", "b.txt": "new"}


def test_an_error_has_its_reason(tmp_path: Path) -> None:
    """Also after a process has sent it to another."""
    with pytest.raises(WriteError) as caught, replacing(tmp_path / "a.txt"):
        pass
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.reason == "No such file or directory"
        assert str(error) == f"{tmp_path}/a.txt: cannot be written ({error.reason})"


WRITE_AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from turnpike.common.durable_files import replacing
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for name in sys.argv[1:]:
    with replacing(Path(name)) as draft:
        draft.write_text("new")
"""


def test_folders_that_may_be_written_but_not_listed() -> None:
    """A file is replaced there, and one in a new folder below it is created."""
    # not in tmp_path, whose parents are closed to other users
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        (shared / "log.txt").write_text("old")
        shared.chmod(0o333)
        paths = [str(shared / "log.txt"), str(shared / "runs" / "log.txt")]
        try:
            subprocess.run(
                [sys.executable, "-c", WRITE_AS_ANOTHER_USER, *paths], env=environment(), check=True
            )
        finally:
            shared.chmod(0o700)
        assert files(shared) == {"log.txt": "new", "runs/log.txt": "new"}


def test_created_folders_are_removed_after_an_error(tmp_path: Path) -> None:
    """Existing ones stay."""
    (tmp_path / "mine").mkdir()

    def fail(path: Path) -> None:
        with replacing(path) as draft:
            draft.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail(tmp_path / "mine" / "net" / "1" / "model.onnx")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    """None is replaced if one of them cannot be written."""
    paths = tmp_path / "report.json", tmp_path / "index.html"
    with replacing_all(*paths) as drafts:
        for draft in drafts:
            draft.write_text("old")
    with (
        pytest.raises(WriteError, match="report.json, .*index.html: cannot"),
        replacing_all(*paths) as drafts,
    ):
        drafts[0].write_text("new")
    assert files(tmp_path) == {"report.json": "old", "index.html": "old"}


def test_texts_are_written_together(tmp_path: Path) -> None:
    """A text that cannot be written, since it has half of a character, leaves both files as they were."""
    first, second = tmp_path / "new" / "a.json", tmp_path / "new" / "a.html"
    write_texts({first: "é", second: "old"})
    with pytest.raises(UnicodeEncodeError):
        write_texts({first: "new", second: "\ud800"})
    assert files(tmp_path) == {"new/a.json": "é", "new/a.html": "old"}


def test_a_moved_file_and_its_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before the name appears, and the name after it."""
    draft, path = tmp_path / "draft", tmp_path / "names" / "digest"
    path.parent.mkdir()
    draft.write_text("whole")
    flushed: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink(), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    move_durably(draft, path)
    assert flushed == [(draft, False), (path.parent, True)]
    assert files(tmp_path) == {"names/digest": "whole"}


def test_a_claimed_folder_is_neither_locked_nor_made(tmp_path: Path) -> None:
    """Its owner has an exclusive lock, for which a second lock would wait for ever.

    A machine that does not share the folder gets an error: a file in a folder made there would be lost.
    """
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with replacing(tmp_path / "part.parquet", folder_is_locked=True) as draft:
            draft.write_text("whole")
    finally:
        os.close(descriptor)
    with (
        pytest.raises(WriteError, match="No such file"),
        replacing(tmp_path / "absent" / "part.parquet", folder_is_locked=True) as draft,
    ):
        draft.write_text("lost")
    assert files(tmp_path) == {"part.parquet": "whole"}
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    """Nothing is left by the question."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    assert writing_problem(tmp_path) is None
    assert writing_problem(tmp_path / "a" / "b") is None
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert writing_problem(folder) == f"{tmp_path}/file is a file"
    for name, reason in (("link", "No such file or directory"), ("x" * 300, "File name too long")):
        folder = tmp_path / name
        assert writing_problem(folder) == f"no file can be made in {folder} ({reason})"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


WRITER = """
import sys
from pathlib import Path
from turnpike.common.durable_files import replacing
with replacing(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    print(draft, flush=True)
    sys.stdin.readline()
    draft.write_text("whole")
"""


def test_a_draft_is_removed_by_the_next_write_once_its_process_is_dead(tmp_path: Path) -> None:
    """Not while the process lives, and files that are no drafts of this file stay."""
    path = tmp_path / "model.onnx"
    others = [".model.0123456.onnx", ".model.01234567.txt", ".other.01234567.onnx", "model.01234567.onnx"]
    for name in others:
        (tmp_path / name).write_text("mine")

    def start() -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", WRITER, str(path)]
        process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    killed, killed_draft = start()
    with killed:
        killed.kill()
    assert killed_draft.read_text() == "half"
    alive, alive_draft = start()
    with alive:
        assert not killed_draft.exists()
        with replacing(path) as draft:
            draft.write_text("ours")
        assert alive_draft.read_text() == "half"
        assert path.read_text() == "ours"
        alive.communicate("go on\n")
    assert alive.returncode == 0
    assert files(tmp_path) == {"model.onnx": "whole", **dict.fromkeys(others, "mine")}
