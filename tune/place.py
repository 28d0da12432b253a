"""Where what was found is written: both files, each whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from service.tuned import FILE
from tune.errors import TuneError, UsageError
from tune.found import Found
from tune.page import page
from tune.settings_file import settings_file

PAGE = "tuned.html"


def prepare(folder: Path) -> None:
    """Make the folder and see that it can be written, before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(4)}"
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise UsageError(
            f"--out: expected a folder that can be written, {folder}: {error.strerror}"
        ) from error


def write(folder: Path, found: Found) -> tuple[Path, Path]:
    """Write both files, and give their paths."""
    texts = {FILE: settings_file(found), PAGE: page(found)}
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        for name, text in texts.items():
            _put(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
    except OSError as error:
        raise TuneError(f"{folder}: what was found could not be written ({error.strerror})") from error
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()
    return folder / FILE, folder / PAGE


def _put(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
