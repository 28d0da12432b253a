"""What a load test found out, for people and for programs: `report.html` and `report.json` in a folder."""

from __future__ import annotations

import json
from pathlib import Path

from loadtest.errors import LoadTestError, UsageError
from loadtest.measure.record import Record
from loadtest.report.document import document
from loadtest.report.page import page
from loadtest.report.place import put, try_out

PAGE, FIGURES = "report.html", "report.json"


def prepare(folder: Path) -> None:
    """Make the folder of a report and see that it can be written, before any load."""
    try:
        try_out(folder)
    except OSError as error:
        raise UsageError(
            f"--report: expected a folder that can be written, {folder}: {error.strerror}"
        ) from error


def write(folder: Path, record: Record) -> Path:
    """Write both files, each whole or not at all, and give the page's path."""
    found = document(record)
    try:
        put(folder, {FIGURES: json.dumps(found, allow_nan=False) + "\n", PAGE: page(found)})
    except OSError as error:
        raise LoadTestError(f"{folder}: the report could not be written ({error.strerror})") from error
    return folder / PAGE
