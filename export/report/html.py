"""Builds HTML and SVG from parts; text that is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_markup


class Markup(str):
    """Text that is markup already. Created only by `tag`, `join` and constants of this package."""

    __slots__ = ()


Part = Markup | str | int | float | None

VOID_ELEMENTS = {"meta", "img", "br"}
# characters with which a name could turn the direction of the text around it, and escapes to show instead
DIRECTION_CONTROLS = {code: f"\\u{code:x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def escape(text: str) -> str:
    """The text as HTML."""
    return escape_markup(text.translate(DIRECTION_CONTROLS))


def tag(element: str, /, *parts: Part, **attributes: str | int | float | None) -> Markup:
    """An element. In attribute names `class_` means class and `_` a hyphen; None is left out."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in VOID_ELEMENTS:
        return Markup(f"<{element}{attribute_text}>")
    return Markup(f"<{element}{attribute_text}>{join(parts)}</{element}>")


def join(parts: Iterable[Part]) -> Markup:
    """Concatenate parts, escaping those that are not markup."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts if part is not None)
    )


def section(title: str, intro: Part, *parts: Markup) -> Markup:
    """A panel: a heading, an introduction (if not None), and the content."""
    introduction = None if intro is None else tag("p", intro, class_="quiet")
    return tag("section", tag("h2", title), introduction, *parts)


def tile(figure: Part, name: str, note: str) -> Markup:
    """One large figure with its name and a note."""
    text = f"{figure:,}" if isinstance(figure, int) else figure
    return tag(
        "div",
        tag("div", text, class_="figure"),
        tag("div", name),
        tag("div", note, class_="name"),
        class_="tile",
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Part]],
    text_columns: Sequence[int] = (),
    bold: int | None = None,
) -> Markup:
    """A table of figures; the columns in `text_columns` hold text, and row number `bold` is bold."""
    classes = ["word" if column in text_columns else "number" for column in range(len(head))]
    head_row = tag(
        "tr",
        # a column of names needs no heading of its own
        *(
            tag("th" if name else "td", name, class_=kind, scope="col" if name else None)
            for name, kind in zip(head, classes, strict=True)
        ),
    )
    body_rows = [
        tag(
            "tr",
            *(tag("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)),
            class_="total" if number == bold else None,
        )
        for number, row in enumerate(rows)
    ]
    # a box that scrolls can be reached with the keyboard
    return tag(
        "div",
        tag("table", tag("thead", head_row), tag("tbody", *body_rows)),
        class_="scroll table",
        tabindex=0,
    )


def side_by_side(*parts: Markup) -> Markup:
    """Figures and tables beside each other if the page is wide enough."""
    return tag("div", *parts, class_="figures")


def format_bytes(count: int) -> str:
    """A number of bytes with a unit, as in `1.23 MB`."""
    if count < 1000:
        return f"{count} B"
    size, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
