"""What the sections of a report are put together from."""

from __future__ import annotations

from collections.abc import Sequence

from export.report.markup import Markup, Part, tag


def section(title: str, intro: Part, *parts: Markup) -> list[Markup]:
    """A heading, what one should know to read what follows, and what follows."""
    return [tag("h2", title), *([] if intro is None else [tag("p", intro, class_="quiet")]), *parts]


def tile(number: Part, what: str, more: str) -> Markup:
    """One figure, large."""
    shown = f"{number:,}" if isinstance(number, int) else number
    return tag("div", tag("b", shown), what, tag("br"), tag("span", more), class_="tile")


def table(head: Sequence[str], rows: Sequence[Sequence[Part]], words: Sequence[int]) -> Markup:
    """Rows of figures; the columns in `words` are text."""
    kinds = ["word" if n in words else None for n in range(len(head))]
    top = tag("tr", *(tag("th", name, class_=kind) for name, kind in zip(head, kinds, strict=True)))
    lines = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", top), tag("tbody", *lines)), class_="table")


def figures_row(*parts: Markup) -> Markup:
    """Pictures and tables side by side, where there is room."""
    return tag("div", *parts, class_="figures")


def size_of(count: int) -> str:
    """Bytes as a person says them."""
    if count < 1000:
        return f"{count} B"
    size, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
