"""Where what was found is written: both files, each whole or not at all."""

from __future__ import annotations

from pathlib import Path

from loadtest.report.place import put, try_out
from service.config.auto_workers import TUNED_FILE
from tune.errors import TuneError, UsageError
from tune.page import page
from tune.result import Found
from tune.tuned_file import settings_file

PAGE = "tuned.html"


def prepare(folder: Path) -> None:
    """Make the folder and see that it can be written, before anything is measured."""
    try:
        try_out(folder)
    except OSError as error:
        raise UsageError(
            f"--out: expected a folder that can be written, {folder}: {error.strerror}"
        ) from error


def write(folder: Path, found: Found) -> tuple[Path, Path]:
    """Write both files, and give their paths."""
    try:
        put(folder, {TUNED_FILE: settings_file(found), PAGE: page(found)})
    except OSError as error:
        raise TuneError(f"{folder}: what was found could not be written ({error.strerror})") from error
    return folder / TUNED_FILE, folder / PAGE
