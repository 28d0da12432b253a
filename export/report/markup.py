"""HTML and SVG put together from parts, in which text is text: what is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
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
