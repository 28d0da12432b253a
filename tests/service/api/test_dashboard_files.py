"""What the files of the dashboard must contain, and what they must not."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.dashboard_files import FILES, FOLDER, SCRIPTS, TYPES, name_of, text

# ways to turn text into elements, code or styles
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc"
    r"|\beval\b|new Function|set(?:Timeout|Interval)\(\s*[\"'`]|javascript:"
)
INLINE_CODE = re.compile(r"<[^>]*\s(?:on\w+|style)\s*=|<style\b|<script\b(?![^>]*\ssrc=)")
ABSOLUTE = re.compile(
    r"""(?:src|href)=["']/|["'(]/(?:dashboard|v1|v2|metrics|docs)\b|\(`/|https?://|wss?://"""
)
IMPORTS = re.compile(
    r"""^(?:import|export)\b[^;"'()=]*["']([^"']+)["'];|\bimport\(["']([^"']+)["']\)""", re.MULTILINE
)
SVG_NAMESPACE = "http://www.w3.org/2000/svg"


def test_there_are_files_of_every_kind() -> None:
    """Otherwise the tests below would check nothing."""
    assert {path.suffix for path in FILES} == set(TYPES)
    assert len(SCRIPTS) > 5


def test_no_file_is_too_long() -> None:
    lines = {path.name: len(text(path).splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_every_script_starts_with_a_description() -> None:
    assert [path.name for path in SCRIPTS if not re.match(r"// [A-Z]\w*", text(path))] == []


def test_no_absolute_urls_are_fetched() -> None:
    """An absolute path would lose the path prefix of a proxy."""
    matches = {path.name: ABSOLUTE.findall(text(path).replace(SVG_NAMESPACE, "")) for path in FILES}
    assert {name: hits for name, hits in matches.items() if hits} == {}


@pytest.mark.parametrize("forbidden", [MARKUP, INLINE_CODE], ids=["by a script", "in a tag"])
def test_no_script_sets_markup_from_text(forbidden: re.Pattern[str]) -> None:
    """Names of models and labels may come from untrusted files."""
    matches = {path.name: forbidden.findall(text(path)) for path in FILES}
    assert {name: hits for name, hits in matches.items() if hits} == {}


@pytest.mark.parametrize(
    ("forbidden", "line"),
    [
        (MARKUP, "node.innerHTML = name;"),
        (MARKUP, "setTimeout(`go(${name})`, 1)"),
        (INLINE_CODE, '<p class="a" style="color: red">'),
        (INLINE_CODE, '<button onclick="go()">'),
        (INLINE_CODE, "<script>go()</script>"),
        (ABSOLUTE, 'fetch("/v2/models")'),
        (ABSOLUTE, 'import "https://elsewhere.example/a.js";'),
        (ABSOLUTE, '<link href="/dashboard/styles/page.css">'),
    ],
)
def test_the_patterns_find_forbidden_lines(forbidden: re.Pattern[str], line: str) -> None:
    assert forbidden.search(line)


def test_every_reference_is_a_file() -> None:
    """Imports of scripts, and references of the page. Style sheets have none."""
    imports = [(path, "".join(found)) for path in SCRIPTS for found in IMPORTS.findall(text(path))]
    assert len(imports) > len(SCRIPTS)
    for path, name in imports:
        assert name.startswith(("./", "../")), f"{name_of(path)}: {name}"
        assert imported(path, name) in FILES, f"{name_of(path)}: {name}"
    references = re.findall(r"""(?:src|href)=["']([^"'#]+)["']""", text(FOLDER / "index.html"))
    assert "docs" in references
    for name in references:
        assert name == "docs" or (FOLDER.parent / urlsplit(name).path).is_file(), name
    styles = [path for path in FILES if path.suffix == ".css"]
    assert styles
    assert not [name_of(path) for path in styles if "url(" in text(path)]


def imported(path: Path, name: str) -> Path:
    """The file that an import in a script refers to."""
    return (path.parent / name).resolve()


def test_every_imported_name_is_exported() -> None:
    """A browser runs none of the modules if one name is missing."""
    exported = {
        path: set(
            re.findall(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", text(path), re.MULTILINE)
        )
        for path in SCRIPTS
    }
    missing = [
        f"{name_of(path)}: {name} of {source}"
        for path in SCRIPTS
        for names, source in re.findall(r"""^import \{([^}]*)\} from "([^"]+)";""", text(path), re.MULTILINE)
        for name in (part.split(" as ")[0].strip() for part in names.split(",") if part.strip())
        if name not in exported.get(imported(path, source), ())
    ]
    assert missing == []


def test_no_file_is_unused() -> None:
    """Every script and style sheet is reached from the page."""
    index = FOLDER / "index.html"
    reached, waiting = {index}, [index]
    while waiting:
        path = waiting.pop()
        if path == index:
            names = re.findall(r"""(?:src|href)=["']dashboard/([^"']+)["']""", text(path))
            new = {FOLDER / name for name in names} - reached
        else:
            new = {
                imported(path, name) for name in re.findall(r"""["'](\.\.?/[\w./-]+)["']""", text(path))
            } - reached
        reached |= new
        waiting += new
    assert set(FILES) - reached == set()
