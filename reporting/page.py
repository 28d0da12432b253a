"""Builds a page from its components: sections, tables, tiles and charts, which `report.css` styles.

A page is one file. It has no scripts and loads nothing, and its policy forbids both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from turnpike.reporting.chart import Chart
from turnpike.reporting.markup import Markup, Part, tag
from turnpike.reporting.svg import draw

STYLE_FILE = Path(__file__).parent / "report.css"
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def build_page(title: str, *sections: Part, has_images: bool = False) -> str:
    """A complete page.

    Args:
        title: For the window; the page itself begins with its first section.
        sections: The content; None is left out.
        has_images: Whether the content has images, as `data:` URLs.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"{CONTENT_SECURITY_POLICY}; img-src data:" if has_images else CONTENT_SECURITY_POLICY,
        ),
        tag("title", f"{title} · turnpike"),
        tag("style", Markup(STYLE_FILE.read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *sections)), lang='en')}\n"


def summary(title: str, badges: Iterable[Markup], *parts: Part) -> Markup:
    """The first section of a page, with its heading."""
    return tag("section", tag("div", tag("h1", title), *badges, class_="title"), *parts)


def section(title: str, intro: Part, *parts: Part) -> Markup:
    """A panel: a heading, an introduction (if not None), and the content."""
    introduction = None if intro is None else tag("p", intro, class_="quiet")
    return tag("section", tag("h2", title), introduction, *parts)


def badge(text: str, kind: Literal["ok", "alarm", "off"]) -> Markup:
    """A verdict beside a heading."""
    return tag("span", text, class_=f"badge {kind}")


def verdict(*, kept: bool) -> Markup:
    """Whether a limit was kept, as a sign and a word."""
    return tag("span", "kept" if kept else "missed", class_=f"sign {'ok' if kept else 'alarm'}")


def notes(texts: Collection[str], kind: Literal["watch", "alarm"]) -> Markup | None:
    """Texts that a reader must see; None if there are none."""
    return tag("ul", *(tag("li", text) for text in texts), class_=f"note {kind}") if texts else None


def tile(figure: Part, name: str, note: str | None = None) -> Markup:
    """One large figure with its name, and a note."""
    text = f"{figure:,}" if isinstance(figure, int) else figure
    names = [tag("div", name, class_="name")]
    if note is not None:
        names = [tag("div", name), tag("div", note, class_="name")]
    return tag("div", tag("div", text, class_="figure"), *names, class_="tile")


def tiles(*parts: Markup | None) -> Markup:
    """Tiles beside each other."""
    return tag("div", *parts, class_="tiles")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Part]],
    text_columns: Collection[int] = (),
    *,
    bold: int | None = None,
    caption: str | None = None,
) -> Markup:
    """A table of figures, whose first column names the rows.

    Args:
        head: The names of the columns.
        rows: The cells of each row.
        text_columns: Columns that hold text and not figures.
        bold: The number of a row to emphasize.
        caption: A sentence above the table.
    """
    classes = ["word" if column in text_columns else "number" for column in range(len(head))]
    # a column of names needs no heading of its own
    names = (
        tag("th" if name else "td", name, class_=kind, scope="col" if name else None)
        for name, kind in zip(head, classes, strict=True)
    )
    body = []
    for number, (name, *cells) in enumerate(rows):
        figures = (tag("td", cell, class_=kind) for cell, kind in zip(cells, classes[1:], strict=True))
        kind = "total" if number == bold else None
        body.append(tag("tr", tag("th", name, class_=classes[0], scope="row"), *figures, class_=kind))
    title = None if caption is None else tag("caption", caption)
    # a box that scrolls can be reached with the keyboard
    return tag(
        "div",
        tag("table", title, tag("thead", tag("tr", *names)), tag("tbody", *body)),
        class_="scroll table",
        tabindex=0,
    )


def folded(name: str, content: Markup) -> Markup:
    """Content that a reader opens."""
    return tag("details", tag("summary", name), content)


def side_by_side(*parts: Part) -> Markup:
    """Figures and tables beside each other if the page is wide enough."""
    return tag("div", *parts, class_="figures")


def figure(title: str, *parts: Part, description: str = "", name: str = "") -> Markup:
    """A picture below its title. `name` is part of its id."""
    caption = tag("figcaption", tag("b", title), description)
    return tag("figure", caption, *parts, id=f"chart-{name}" if name else None)


def chart_figure(chart: Chart) -> Markup:
    """A chart with its title, its description and its legend."""
    return figure(chart.title, draw(chart), description=chart.description, name=chart.name)
