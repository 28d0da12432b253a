"""Writes result files atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def ensure_writable(folder: Path) -> None:
    """Make the folder and check that files can be written into it; raises an OSError if not."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(4)}"
    draft.touch()
    draft.unlink()


def write_all(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by name; none of them appears before all are complete. Raises an OSError on failure.

    A killed process may leave hidden files with parts of the texts.
    """
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
        _flush(folder)
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()


def _flush(folder: Path) -> None:
    """Wait until the names of the files are on the disk; some file systems of networks cannot do this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
