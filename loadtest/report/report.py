"""Writes the report of a load test: `loadtest.html` for people and `loadtest.json` for programs."""

from __future__ import annotations

import json
from pathlib import Path

from turnpike.loadtest.errors import LoadTestError, UsageError
from turnpike.loadtest.measure.record import Record
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.html_output import ensure_writable, write_all
from turnpike.loadtest.report.page import render_report

HTML_FILE, JSON_FILE = "loadtest.html", "loadtest.json"


def prepare_folder(folder: Path) -> None:
    """Make the folder of a report and check that it can be written, before the load begins."""
    try:
        ensure_writable(folder)
    except OSError as error:
        raise UsageError(f"--report: expected a writable folder, {folder}: {error.strerror}") from error


def write_report(folder: Path, record: Record) -> Path:
    """Write both files, each whole or not at all; returns the path of the page."""
    report = build_document(record)
    texts = {JSON_FILE: json.dumps(report, allow_nan=False) + "\n", HTML_FILE: render_report(report)}
    try:
        write_all(folder, texts)
    except OSError as error:
        raise LoadTestError(f"{folder}: the report could not be written ({error.strerror})") from error
    return folder / HTML_FILE
