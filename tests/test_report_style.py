"""One look for the dashboard, reports and pictures: the same tokens, and the same components."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tests.support.source_files import PACKAGES, ROOT
from turnpike.models.plots import style
from turnpike.reporting.chart import Color
from turnpike.reporting.page import STYLE_FILE

DASHBOARD = ROOT / "service" / "dashboard" / "styles"
DARK = "@media screen and (prefers-color-scheme: dark)"
# components that a report must not lack
COMPONENTS = {
    *("body", "section", "h1, h2", "p", "table", "th, td", "thead th", ".number", ".tiles", ".tile"),
    *(".tile .figure", ".tile .name", ".badge", ".badge.ok", ".note", ".note.watch", "summary", "figcaption"),
}

# the declarations of each selector
Rules = dict[str, dict[str, str]]


def read_rules(css: str, media: str = "") -> Rules:
    """The rules of a style sheet, or of one of its media queries. Later declarations replace earlier ones."""
    text = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    blocks = re.compile(r"(@media[^{]*)\{((?:[^{}]*\{[^{}]*\})*)[^{}]*\}")
    if media:
        text = next((found[2] for found in blocks.finditer(text) if found[1].strip() == media), "")
    else:
        text = blocks.sub("", text)
    rules: Rules = {}
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        declarations = (line.partition(":") for line in body.split(";") if line.strip())
        values = {name.strip(): " ".join(value.split()) for name, _, value in declarations}
        rules.setdefault(" ".join(selector.split()), {}).update(values)
    return rules


def differing_tokens(css: str, tokens: str) -> list[str]:
    """Colors, sizes and fonts of a report that the dashboard lacks or that it has other values for."""
    page = read_rules(tokens)
    sides = (
        ("light", read_rules(css)[":root"], page[":root"] | page[':root, :root[data-theme="light"]']),
        ("dark", read_rules(css, DARK).get(":root", {}), page[':root[data-theme="dark"]']),
    )
    return [
        f"{theme} {name}: {value}"
        for theme, report, dashboard in sides
        for name, value in report.items()
        if dashboard.get(name) != value
    ]


def differing_components(css: str, components: str) -> list[str]:
    """Selectors that both style sheets have, with other declarations."""
    report, page = read_rules(css), read_rules(components)
    return [selector for selector in report if selector in page and report[selector] != page[selector]]


@pytest.fixture(scope="module")
def report() -> str:
    return STYLE_FILE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tokens() -> str:
    return (DASHBOARD / "tokens.css").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def components() -> str:
    return "".join((DASHBOARD / name).read_text(encoding="utf-8") for name in ("components.css", "page.css"))


def test_reports_have_the_tokens_of_the_dashboard(report: str, tokens: str) -> None:
    light, dark = read_rules(report)[":root"], read_rules(report, DARK)[":root"]
    used = set(re.findall(r"var\((--[\w-]+)\)", report))
    assert used == {name for name in light if name.startswith("--")}
    assert set(dark) == set(light) & set(read_rules(tokens)[':root[data-theme="dark"]'])
    assert differing_tokens(report, tokens) == []


def test_reports_have_the_components_of_the_dashboard(report: str, components: str) -> None:
    assert COMPONENTS - (set(read_rules(report)) & set(read_rules(components))) == set()
    assert differing_components(report, components) == []


def test_all_reports_have_the_same_style() -> None:
    """There is one style sheet beside that of the dashboard, which the service has for itself."""
    sheets = [
        path for package in PACKAGES if package != "service" for path in (ROOT / package).rglob("*.css")
    ]
    assert sheets == [ROOT / STYLE_FILE.relative_to(STYLE_FILE.parents[1])]


def test_every_color_of_a_chart_is_in_the_style(report: str) -> None:
    assert {f".series-{color}" for color in get_args(Color)} - set(read_rules(report)) == set()


def test_pictures_have_the_colors_of_the_dashboard(report: str) -> None:
    tokens = read_rules(report)[":root"]
    series = [tokens[f"--{name}"] for name in ("series-4", "series-2", "series-1", "alarm")]
    assert series == [style.BLUE, style.ORANGE, style.GREEN, style.RED]
    assert [tokens[f"--{name}"] for name in ("text", "quiet", "line")] == [style.INK, style.GREY, style.FAINT]


def test_differences_are_found(report: str, tokens: str, components: str) -> None:
    other = report.replace("--ok: #6bd093", "--ok: #000000").replace("clamp(15px", "clamp(16px")
    assert [difference.split(":")[0] for difference in differing_tokens(other, tokens)] == [
        "light font-size",
        "dark --ok",
    ]
    other = report.replace("border-radius: 1rem", "border-radius: 2rem")
    assert differing_components(other, components) == [".badge"]
