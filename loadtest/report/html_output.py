"""Renders the HTML pages of loadtest and tune from one shell template."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
