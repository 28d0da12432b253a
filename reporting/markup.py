"""Builds HTML and SVG from parts; text that is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
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
