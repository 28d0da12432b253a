"""Reads a page as a browser would: its text, and its elements with their attributes."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


class PageReader(HTMLParser):
    """The content of a page, in which every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "an element was not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def values(self, attribute: str) -> list[str]:
        """The values of an attribute, in order."""
        return [value for _, attrs in self.elements if (value := attrs.get(attribute)) is not None]


def assert_self_contained(page: PageReader, *, images: str = "") -> None:
    """No script, nothing that is loaded, except for images in `data:` URLs, and a policy that says so."""
    assert page.names() & {"script", "link", "iframe", "object", "base", "form"} == set()
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.keys() & {"href", "srcset", "action"} == set()
        assert (attributes.get("src") or "data:").startswith("data:")
    policy = f"default-src 'none'; style-src 'unsafe-inline'{images}"
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in page.elements
