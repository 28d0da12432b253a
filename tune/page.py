"""The page `tuned.html`: one file that needs nothing else, dressed as the report of a load test is."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from loadtest.report import number_format as wording
from loadtest.report.page import TEMPLATE as DRESS
from tune import sentences
from tune.charts import charts
from tune.result import Found

TEMPLATE = Path(__file__).parent / "template"


def page(found: Found) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("tuned.html").render(
        found=found,
        best=found.decision.best,
        charts=charts(found),
        sentences=sentences,
        wording=wording,
        css=(DRESS / "report.css").read_text(encoding="utf-8"),
        js=(DRESS / "report.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
    )
