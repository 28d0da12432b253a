"""HTML building blocks: text is escaped, wherever it comes from."""

from __future__ import annotations

from turnpike.reporting.markup import join, tag


def test_text_is_escaped_and_markup_is_not() -> None:
    """Only results of tag and join are taken as markup, in attributes as in text."""
    inner = tag("b", "<&>", title='"<')
    assert inner == '<b title="&quot;&lt;">&lt;&amp;&gt;</b>'
    assert tag("p", inner, "<i>", None, 3) == f"<p>{inner}&lt;i&gt;3</p>"
    assert join(["<", inner]) == f"&lt;{inner}"
    assert tag("br") == "<br>"
