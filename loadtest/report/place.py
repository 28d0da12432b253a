"""A folder that results are written to: files that appear whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def try_out(folder: Path) -> None:
    """Make the folder and see that it can be written; an OSError says why it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(4)}"
    draft.touch()
    draft.unlink()


def put(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by name, none of them before all are whole; an OSError says why that cannot be."""
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _put(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()


def _put(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
