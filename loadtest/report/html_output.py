"""Renders the HTML pages of loadtest and tune from one shell template, and writes result files atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from loadtest.report import number_format
from loadtest.report.charts import Chart

# holds the shell that pages extend, its style and its script
SHELL_FOLDER = Path(__file__).parent / "template"


def render_page(template: Path, charts: Iterable[Chart], **values: Any) -> str:
    """Render a template that extends `shell.html` into one self-contained HTML file.

    Args:
        template: Fills the blocks of the shell: `title`, `heading` and `content`.
        charts: Drawn by the page's script, in elements that the template makes with `figure()`.
        values: Variables of the template, beside `charts` (by name) and `fmt` (the number formats).
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, SHELL_FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template.name).render(
        charts={chart.name: chart for chart in charts},
        fmt=number_format,
        css=(SHELL_FOLDER / "shell.css").read_text(encoding="utf-8"),
        js=(SHELL_FOLDER / "shell.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
        **values,
    )


def ensure_writable(folder: Path) -> None:
    """Make the folder and check that files can be written into it; raises an OSError if not."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{secrets.token_hex(4)}"
    draft.touch()
    draft.unlink()


def write_all(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by name; none of them appears before all are complete. Raises an OSError on failure."""
    drafts = {name: folder / f".{secrets.token_hex(4)}.{name}" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(drafts[name], text)
        for name, draft in drafts.items():
            draft.replace(folder / name)
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
