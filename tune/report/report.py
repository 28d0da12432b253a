"""Writes the results of a search: the settings in `tuned.toml`, and the page `tuned.html`."""

from __future__ import annotations

from pathlib import Path

from loadtest.report.html_output import ensure_writable, render_page, write_all
from service.config.auto_workers import TUNED_FILE
from tune.errors import TuneError, UsageError
from tune.report import sentences
from tune.report.charts import make_charts
from tune.report.tuned_file import render_tuned_toml
from tune.result import TuneResult

HTML_FILE = "tuned.html"
TEMPLATE = Path(__file__).parent / "template" / HTML_FILE


def prepare_folder(folder: Path) -> None:
    """Make the folder and check that it can be written, before anything is measured."""
    try:
        ensure_writable(folder)
    except OSError as error:
        raise UsageError(f"--out: expected a writable folder, {folder}: {error.strerror}") from error


def write_results(folder: Path, result: TuneResult) -> tuple[Path, Path]:
    """Write both files, each whole or not at all; returns their paths."""
    texts = {TUNED_FILE: render_tuned_toml(result), HTML_FILE: render_html(result)}
    try:
        write_all(folder, texts)
    except OSError as error:
        raise TuneError(f"{folder}: the results could not be written ({error.strerror})") from error
    return folder / TUNED_FILE, folder / HTML_FILE


def render_html(result: TuneResult) -> str:
    """The whole page."""
    best = result.decision.best
    return render_page(TEMPLATE, make_charts(result), result=result, best=best, sentences=sentences)
