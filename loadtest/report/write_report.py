"""Writes the report of a load test: `loadtest.html` for people and `loadtest.json` for programs."""

from __future__ import annotations

import json
from pathlib import Path

from turnpike.common.durable_files import WriteError, write_texts, writing_problem
from turnpike.loadtest.errors import LoadTestError, UsageError
from turnpike.loadtest.measure.record import Record
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.page import render_report

HTML_FILE, JSON_FILE = "loadtest.html", "loadtest.json"


def prepare_folder(folder: Path) -> None:
    """Check that the folder of a report can be written, before the load begins."""
    if problem := writing_problem(folder):
        raise UsageError(f"--report: expected a writable folder, {folder}: {problem}")


def write_report(folder: Path, record: Record) -> Path:
    """Write both files, each whole or not at all; returns the path of the page."""
    report = build_document(record)
    texts = {
        folder / JSON_FILE: json.dumps(report, allow_nan=False) + "\n",
        folder / HTML_FILE: render_report(report),
    }
    try:
        write_texts(texts)
    except WriteError as error:
        raise LoadTestError(f"{folder}: the report could not be written ({error.reason})") from error
    return folder / HTML_FILE
