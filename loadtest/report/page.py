"""The page of a report: one file that needs nothing else, made of the figures of the document alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from loadtest.report import number_format as wording
from loadtest.report import sentences
from loadtest.report.charts import charts

TEMPLATE = Path(__file__).parent / "template"


def page(found: Mapping[str, Any]) -> str:
    """The whole page of a document that `figures.document` made."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html").render(
        found=found,
        charts=charts(found),
        sentences=sentences,
        wording=wording,
        css=(TEMPLATE / "report.css").read_text(encoding="utf-8"),
        js=(TEMPLATE / "report.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
    )
