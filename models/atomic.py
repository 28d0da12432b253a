"""Atomic file writes: a file appears complete or not at all, also when the process is killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from turnpike.models.errors import WriteError

# characters of the random part of a draft's name
TOKEN_LENGTH = 8


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft beside `path`; after the block has written it, it replaces `path`.

    If the block is stopped by an error, Ctrl-C or a full disk, the old file stays unchanged, and folders that
    were created for it are removed. An OSError becomes a WriteError that names the file.
    """
    with replacing_all(path) as (draft,):
        yield draft


@contextlib.contextmanager
def replacing_all(*paths: Path) -> Iterator[tuple[Path, ...]]:
    """`replacing` for files of one folder that belong together.

    None is replaced before all drafts are complete and on the disk.
    """
    folder = paths[0].parent
    drafts = tuple(
        path.with_name(f".{path.stem}.{secrets.token_hex(TOKEN_LENGTH // 2)}{path.suffix}") for path in paths
    )
    try:
        with _created(folder) as changed_folders, _reserved(folder, paths):
            try:
                yield drafts
                for draft in drafts:
                    # some libraries create files that only their owner can read
                    draft.chmod(0o666 & ~umask())
                    _flush(draft)
                for draft, path in zip(drafts, paths, strict=True):
                    draft.replace(path)
            finally:
                for draft in drafts:
                    with contextlib.suppress(OSError):  # the first error is the one to report
                        draft.unlink()
            for changed in changed_folders:
                # a folder that this user may not list cannot be opened to flush it; the files are complete
                with contextlib.suppress(PermissionError):
                    _flush(changed)
    except WriteError:  # of a file that the block writes
        raise
    except OSError as error:
        names = ", ".join(map(str, paths))
        raise WriteError(f"{names}: cannot be written ({error.strerror or error})") from error


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
def _reserved(folder: Path, paths: tuple[Path, ...]) -> Iterator[None]:
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
    except OSError as error:
        # some file systems of networks cannot flush a folder
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def umask() -> int:
    """The permission bits that this process clears in new files. The only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def writing_problem(folder: Path) -> str | None:
    """Why nothing can be written into a folder that may not exist yet; None if it can.

    A file is made and removed in the folder or its nearest parent, since not every file system that refuses
    one says so by its permissions.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is a file"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"no file can be made in {existing} ({error.strerror})"
