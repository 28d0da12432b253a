"""Writes the results of a search: the settings in `tuned.toml`, and the page `tuned.html`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnpike.common.durable_files import WriteError, write_texts, writing_problem
from turnpike.reporting import number_format as fmt
from turnpike.service.config.auto_workers import MEASURED_TABLE, TUNED_FILE, TUNED_SETTINGS
from turnpike.tune.errors import TuneError, UsageError
from turnpike.tune.report.page import render_html
from turnpike.tune.report.sentences import result_sentences, users_text
from turnpike.tune.result import TuneResult
from turnpike.tune.search.measurements import LoadFigures

HTML_FILE = "tuned.html"


def prepare_folder(folder: Path) -> None:
    """Check that the folder can be written, before anything is measured."""
    if problem := writing_problem(folder):
        raise UsageError(f"--out: expected a writable folder, {folder}: {problem}")


def write_results(folder: Path, result: TuneResult) -> tuple[Path, Path]:
    """Write both files, each whole or not at all; returns their paths."""
    texts = {folder / TUNED_FILE: render_tuned_toml(result), folder / HTML_FILE: render_html(result)}
    try:
        write_texts(texts)
    except WriteError as error:
        raise TuneError(f"{folder}: the results could not be written ({error.reason})") from error
    return folder / TUNED_FILE, folder / HTML_FILE


def render_tuned_toml(result: TuneResult) -> str:
    """The text of `tuned.toml`: the best settings, as serve reads them, and how they were measured."""
    return "\n".join([*_comment(result), *_settings(result), "", *_measured(result)]) + "\n"


def _comment(result: TuneResult) -> Iterator[str]:
    """The result in sentences, and a table of all candidates."""
    yield "# Written by turnpike tune. `turnpike serve --workers auto` uses these settings if this file is in"
    yield "# its model repository and the machine is similar. `turnpike serve --config` works on any machine."
    yield "#"
    for sentence in result_sentences(result):
        yield from textwrap.wrap(_printable(sentence), 100, initial_indent="# ", subsequent_indent="# ")
    yield "#"
    header = ["workers x threads", "gain", *(users_text(users) for users in result.plan.users)]
    rows = [
        [tried.candidate.name, f"{tried.gain:.2f}", *map(_cell, tried.trial)] for tried in result.candidates
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        yield ("# " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    yield ""


def _settings(result: TuneResult) -> Iterator[str]:
    for name in TUNED_SETTINGS:
        yield f"{name} = {getattr(result.decision.best, name)}"


def _measured(result: TuneResult) -> Iterator[str]:
    """The table that says how the settings were measured."""
    values: dict[str, Any] = {
        **result.machine,
        "date": result.ended.isoformat(timespec="seconds"),
        "model": result.model.name,
        "slo": result.plan.slo or "none",
        "kept": result.decision.keeps_slo,
        "users": list(result.plan.users),
        "rows": result.plan.rows,
        "wire": result.plan.wire,
        "seconds": result.load_seconds,
        "noise": round(result.decision.noise, 4),
        **{name.replace("-", "_"): version for name, version in result.versions.items()},
    }
    yield f"[{MEASURED_TABLE}]"
    for name, value in values.items():
        # numbers, lists and strings of JSON are valid TOML
        yield f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _cell(figures: LoadFigures) -> str:
    missed = " missed" if figures.failures else ""
    return f"{fmt.number(figures.rate)}/s p99 {fmt.seconds(figures.p99)}{missed}"


def _printable(sentence: str) -> str:
    """The sentence without characters that would end its comment, which names of files may contain."""
    return "".join(letter if letter.isprintable() else " " for letter in sentence)
