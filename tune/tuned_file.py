"""`tuned.toml`: the settings that were found, as serve reads them, and how they were measured."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from loadtest.report import number_format as wording
from service.config.auto_workers import MEASURED_TABLE, TUNED_SETTINGS
from tune.measurements import Figures
from tune.result import Found
from tune.sentences import crowd, sentences


def settings_file(found: Found) -> str:
    """The whole text."""
    return "\n".join([*_head(found), *_settings(found), "", *_measured(found)]) + "\n"


def _head(found: Found) -> Iterator[str]:
    yield "# Written by turnpike tune. In a repository `turnpike serve --workers auto` takes these settings,"
    yield "# on a machine like this one; `turnpike serve --config` takes them anywhere."
    yield "#"
    for sentence in sentences(found):
        yield from textwrap.wrap(_plain(sentence), 100, initial_indent="# ", subsequent_indent="# ")
    yield "#"
    heads = ["workers x threads", "gain", *(crowd(users) for users in found.plan.users)]
    rows = [[line.candidate.name, f"{line.gain:.2f}", *map(_cell, line.trial)] for line in found.lines]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, *rows]:
        yield ("# " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    yield ""


def _settings(found: Found) -> Iterator[str]:
    for name in TUNED_SETTINGS:
        yield f"{name} = {getattr(found.decision.best, name)}"


def _measured(found: Found) -> Iterator[str]:
    told: dict[str, Any] = {
        **found.machine,
        "date": found.ended.isoformat(timespec="seconds"),
        "model": found.subject.name,
        "slo": found.plan.slo or "none",
        "kept": found.decision.kept,
        "users": list(found.plan.users),
        "rows": found.plan.rows,
        "wire": found.plan.wire,
        "seconds": found.seconds,
        "noise": round(found.decision.noise, 4),
        **{name.replace("-", "_"): version for name, version in found.versions.items()},
    }
    yield f"[{MEASURED_TABLE}]"
    for name, value in told.items():
        # a number, a list or a basic string of TOML is one of JSON
        yield f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _cell(one: Figures) -> str:
    missed = " missed" if one.failures else ""
    return f"{wording.number(one.rate)}/s p99 {wording.seconds(one.p99)}{missed}"


def _plain(sentence: str) -> str:
    """A sentence that cannot end its comment: names of files may hold anything."""
    return "".join(letter if letter.isprintable() else " " for letter in sentence)
