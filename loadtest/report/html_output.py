"""Renders the HTML pages of loadtest and tune from one shell template, and writes result files atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from turnpike.loadtest.report import number_format
from turnpike.loadtest.report.chart_parts import Chart
from turnpike.loadtest.report.svg import draw, show_controls

# the whole part of a figure; empty if there is none
LEADING_DIGITS = re.compile(r"-?[\d,]*")

# holds the shell that pages extend, and its style
SHELL_FOLDER = Path(__file__).parent / "template"


def render_page(template: Path, charts: Iterable[Chart], **values: Any) -> str:
    """Render a template that extends `shell.html` into one self-contained HTML file.

    Args:
        template: Fills the blocks of the shell: `title` and `content`.
        charts: Drawn where the template calls `figure()`.
        values: Variables of the template, beside `charts` (by name) and `fmt` (the number formats).
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, SHELL_FOLDER]),
        autoescape=True,
        finalize=show_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["aligned"] = _aligned
    return environment.get_template(template.name).render(
        charts={chart.name: chart for chart in charts},
        fmt=number_format,
        css=(SHELL_FOLDER / "report.css").read_text(encoding="utf-8"),
        draw=draw,
        **values,
    )


def _aligned(text: str) -> Markup:
    """A figure whose decimals and unit are in a box of one width, so that the points of a column align."""
    whole = LEADING_DIGITS.match(text)[0]  # type: ignore[index]
    decimals = text[len(whole) :]
    kind = (
        "decimals percent" if decimals.endswith("%") else "decimals unit" if " " in decimals else "decimals"
    )
    return Markup('{}<span class="{}">{}</span>').format(whole, kind, decimals)


def ensure_writable(folder: Path) -> None:
    """Make the folder and check that files can be written into it; raises an OSError if not."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(4)}"
    draft.touch()
    draft.unlink()


def write_all(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by name; none of them appears before all are complete. Raises an OSError on failure.

    A killed process may leave hidden files with parts of the texts.
    """
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
        _flush(folder)
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()


def _flush(folder: Path) -> None:
    """Wait until the names of the files are on the disk; some file systems of networks cannot do this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
