"""Durable writes: a file appears complete or not at all, also when its process is killed or power fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

# characters of the random part of a draft's name
TOKEN_LENGTH = 8
# errors of file systems of networks that cannot flush a folder
NO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP})


class WriteError(OSError):
    """A file cannot be written: the disk is full or fails, or the folder is read-only.

    The message names the file and the reason; `reason` is the reason alone. The cause is the first error.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@contextlib.contextmanager
def replacing(path: Path, *, folder_is_locked: bool = False) -> Iterator[Path]:
    """Yield a draft beside `path`; after the block has written it, it replaces `path`.

    If the block is stopped by an error, Ctrl-C or a full disk, the old file stays unchanged, and folders that
    were created for it are removed. An OSError becomes a WriteError that names the file.

    Drafts that killed processes left are removed, which needs a lock of the folder. With `folder_is_locked`,
    the caller has made the folder, has locked it, and removes such drafts itself.
    """
    with replacing_all(path, folder_is_locked=folder_is_locked) as (draft,):
        yield draft


@contextlib.contextmanager
def replacing_all(*paths: Path, folder_is_locked: bool = False) -> Iterator[tuple[Path, ...]]:
    """`replacing` for files of one folder that belong together.

    None is replaced before all drafts are complete and on the disk.
    """
    folder = paths[0].parent
    drafts = tuple(
        path.with_name(f".{path.stem}.{secrets.token_hex(TOKEN_LENGTH // 2)}{path.suffix}") for path in paths
    )
    try:
        with contextlib.ExitStack() as stack:
            changed_folders = [folder]
            if not folder_is_locked:
                changed_folders = stack.enter_context(_created(folder))
                stack.enter_context(_locked_for_drafts(folder, paths))
            mode = _mode_of_new_files(drafts[0])
            try:
                yield drafts
                for draft in drafts:
                    # some libraries create files that only their owner can read
                    draft.chmod(mode)
                    _flush(draft)
                for draft, path in zip(drafts, paths, strict=True):
                    draft.replace(path)
            finally:
                for draft in drafts:
                    with contextlib.suppress(OSError):  # the first error is the one to report
                        draft.unlink()
            for changed in changed_folders:
                _flush_folder(changed)
    except WriteError:  # of a file that the block writes
        raise
    except OSError as error:
        names, reason = ", ".join(map(str, paths)), str(error.strerror or error)
        raise WriteError(f"{names}: cannot be written ({reason})", reason) from error


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write text files of one folder that belong together, as `replacing_all` does."""
    with replacing_all(*texts) as drafts:
        for draft, text in zip(drafts, texts.values(), strict=True):
            draft.write_text(text, encoding="utf-8")


def move_durably(draft: Path, path: Path) -> None:
    """Replace `path` by a complete draft whose name was unknown before.

    The content is on the disk before its name, and both survive a loss of power.
    """
    _flush(draft)
    draft.replace(path)
    _flush_folder(path.parent)


@contextlib.contextmanager
def _created(folder: Path) -> Iterator[list[Path]]:
    """Create a folder and its parents, and remove those that were created again if the block fails.

    Yields the folders that have a new entry at the end: this one, and the parents of new ones.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield [folder, *(path.parent for path in missing)]
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # not created yet, or used by another process by now
                path.rmdir()
        raise


@contextlib.contextmanager
def _locked_for_drafts(folder: Path, paths: tuple[Path, ...]) -> Iterator[None]:
    """Remove the drafts of `paths` that killed processes left, and let no other process remove ours.

    Every process has a shared lock on the folder while it writes there, and a lock ends with its process. So
    if this process can have an exclusive lock, all drafts in the folder are of processes that were killed.
    """
    descriptor = None
    with contextlib.suppress(PermissionError):  # files can perhaps be created there, but not listed
        descriptor = os.open(folder, os.O_RDONLY)
    if descriptor is None:
        yield
        return
    try:
        with contextlib.suppress(OSError):  # another process writes here, or the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_drafts(folder, paths)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _remove_drafts(folder: Path, paths: tuple[Path, ...]) -> None:
    names = "|".join(
        rf"\.{re.escape(path.stem)}\.[0-9a-f]{{{TOKEN_LENGTH}}}{re.escape(path.suffix)}" for path in paths
    )
    for entry in folder.iterdir():
        if re.fullmatch(names, entry.name):
            entry.unlink()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk, where they survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder where that is possible. If not, its files are complete nevertheless."""
    try:
        _flush(folder)
    except PermissionError:  # a folder that this user may not list cannot be opened
        pass
    except OSError as error:
        if error.errno not in NO_FLUSH:
            raise


def _mode_of_new_files(draft: Path) -> int:
    """The permission bits of a new file in the folder of this draft, which is created and removed.

    They follow the umask and the defaults of the folder. The umask could only be read by setting it, which
    would change the files that other threads create in the meantime.
    """
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        draft.unlink()


def writing_problem(folder: Path) -> str | None:
    """Why nothing can be written into a folder that may not exist yet; None if it can.

    A file is made and removed in the folder or its nearest parent, since not every file system that refuses
    one says so by its permissions.
    """
    nearest = folder
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if _exists(path))
        if not nearest.is_dir():
            return f"{nearest} is a file"
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"no file can be made in {nearest} ({error.strerror})"


def _exists(path: Path) -> bool:
    """Whether a path exists; an OSError if that cannot be known, or if it is a link to nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise
        return False
    return True
