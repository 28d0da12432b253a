"""HTML and SVG put together from parts, in which text is text: what is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is markup already. Only `tag` and `join` make it, and constants of ours."""

    __slots__ = ()


Part = Markup | str | int | float | None

VOID = {"meta", "img", "br"}


def tag(element: str, /, *parts: Part, **attributes: str | int | float | None) -> Markup:
    """An element; `class_` stands for class, and `_` in a name for a hyphen. None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in VOID:
        return Markup(f"<{element}{written}>")
    return Markup(f"<{element}{written}>{join(parts)}</{element}>")


def join(parts: Iterable[Part]) -> Markup:
    """Parts one after the other, escaped where they are not markup."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts if part is not None)
    )


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


def side_by_side(*parts: Markup) -> Markup:
    """Pictures and tables side by side, where there is room."""
    return tag("div", *parts, class_="figures")


def format_bytes(count: int) -> str:
    """Bytes as a person says them."""
    if count < 1000:
        return f"{count} B"
    size, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
