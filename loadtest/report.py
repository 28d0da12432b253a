"""What a load test found out, for people and for programs: `report.html` and `report.json` in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from loadtest.errors import LoadTestError, UsageError
from loadtest.figures import document
from loadtest.page import page
from loadtest.record import Record

PAGE, FIGURES = "report.html", "report.json"


def prepare(folder: Path) -> None:
    """Make the folder of a report and see that it can be written, before any load."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(4)}"
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise UsageError(
            f"--report: expected a folder that can be written, {folder}: {error.strerror}"
        ) from error


def write(folder: Path, record: Record) -> Path:
    """Write both files, each whole or not at all, and give the page's path."""
    found = document(record)
    texts = {FIGURES: json.dumps(found, allow_nan=False) + "\n", PAGE: page(found)}
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _put(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
    except OSError as error:
        raise LoadTestError(f"{folder}: the report could not be written ({error.strerror})") from error
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()
    return folder / PAGE


def _put(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
