"""The dashboard as it is served: its headers, its files, and what the files may not hold."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import plotly
import pytest

from service.api import dashboard as page
from service.api.app import create_app
from service.api.dashboard import FOLDER
from service.config.settings import Settings
from tests.service.api.test_app import Nobody
from tests.support.asgi import Reply, ask

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
LIBRARY = "/dashboard/plotly.js"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# what makes elements, code or styles of a text
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc"
    r"|\beval\b|new Function|set(?:Timeout|Interval)\(\s*[\"'`]|javascript:"
)
OF_A_TAG = re.compile(r"<[^>]*\s(?:on\w+|style)\s*=|<style\b|<script\b(?![^>]*\ssrc=)")
ABSOLUTE = re.compile(
    r"""(?:src|href)=["']/|["'(]/(?:dashboard|v1|v2|metrics|docs)\b|\(`/|https?://|wss?://"""
)
IMPORTED = re.compile(
    r"""^(?:import|export)\b[^;"'()=]*["']([^"']+)["'];|\bimport\(["']([^"']+)["']\)""", re.MULTILINE
)
NAMESPACE = "http://www.w3.org/2000/svg"


def application(**settings: Any) -> Any:
    return create_app(Settings(access_log=False, **settings), Nobody())


@pytest.fixture(scope="module")
def app() -> Any:
    """A service that has an admin's key and an API key: the page is open all the same."""
    return application(api_keys=("key",))


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def unpacked(reply: Reply) -> bytes:
    return gzip.decompress(reply.body) if reply.headers.get("content-encoding") == "gzip" else reply.body


def test_the_page_is_at_the_root(app: Any) -> None:
    """Without a key, with or without a query, and told which release of the charts' library there is."""
    for query in (b"", b"model=digits-10"):
        reply = ask(app, "GET", "/", query=query)
        assert reply.status == 200
        assert reply.headers["content-type"] == TYPES[".html"]
        assert b"<title>turnpike</title>" in reply.body
    release = plotly.__version__
    assert f'<meta name="plotly" content="{release}">'.encode() in reply.body
    added = re.compile(rb'<link rel="modulepreload" href="dashboard/([a-z0-9_/]+\.js)">\n')
    plain = added.sub(b"", reply.body).replace(release.encode(), b"")
    assert plain == (FOLDER / "index.html").read_bytes()
    modules = {name_of(path) for path in SCRIPTS} - {"shell/early_theme.js"}
    assert {name.decode() for name in added.findall(reply.body)} == modules


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js", "/dashboard/styles/tokens.css", LIBRARY])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nothing_foreign_runs_in_it(app: Any, address: str, method: str) -> None:
    """Every part has the policy and its companions, however it is asked for."""
    headers = ask(app, method, address).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "br, gzip;q=0.8"}], ids=["plain", "packed"])
def test_every_file_is_served(app: Any, headers: dict[str, str]) -> None:
    """As it is, with its media type; index.html but for the release and the modules in it."""
    for path in FILES:
        reply = ask(app, "GET", f"/dashboard/{name_of(path)}", headers=headers)
        assert reply.status == 200
        assert reply.headers["content-type"] == TYPES[path.suffix]
        assert ("content-encoding" in reply.headers) == bool(headers)
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert reply.headers["vary"] == "Accept-Encoding"
        if path.name != "index.html":
            assert unpacked(reply) == path.read_bytes()


@pytest.mark.parametrize("refusing", ["", "br", "gzip;q=0", "gzip; q=0.00", "x-gzip"])
def test_gzip_is_for_those_who_take_it(app: Any, refusing: str) -> None:
    """A client that does not name it, or gives it no weight, gets the file as it is."""
    reply = ask(app, "GET", "/dashboard/main.js", headers={"Accept-Encoding": refusing})
    assert "content-encoding" not in reply.headers
    assert reply.body == (FOLDER / "main.js").read_bytes()


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js", LIBRARY])
def test_what_a_client_has_is_not_sent_again(app: Any, address: str) -> None:
    """A tag stands for the content: the same in every process, whatever the encoding; 304 without a body."""
    tag = ask(app, "GET", address).headers["etag"]
    assert ask(application(), "GET", address, headers={"Accept-Encoding": "gzip"}).headers["etag"] == tag
    for known in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        reply = ask(app, "GET", address, headers={"If-None-Match": known})
        assert (reply.status, reply.body) == (304, b"")
        assert reply.headers["etag"] == tag
        assert "cache-control" in reply.headers
        assert "content-length" not in reply.headers
    assert ask(app, "GET", address, headers={"If-None-Match": '"other"'}).status == 200


def test_other_content_has_another_tag(app: Any) -> None:
    """No two files share one."""
    tags = [
        ask(app, "GET", f"/dashboard/{name_of(path)}").headers["etag"]
        for path in FILES
        if path.stat().st_size
    ]
    assert len(set(tags)) == len(tags)


def test_a_file_is_kept_as_it_was_first_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a process sends of a page fits together; a change is seen at the next start."""
    (tmp_path / "index.html").write_text("old")
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    app = application()
    assert ask(app, "GET", "/").body == b"old"
    (tmp_path / "index.html").write_text("new")
    assert ask(app, "GET", "/").body == b"old"
    assert ask(application(), "GET", "/").body == b"new"


def test_the_charts_library_comes_out_of_its_package(app: Any) -> None:
    """Byte for byte, and for good where its release is in the address, as it is in the page's."""
    content = (Path(plotly.__file__).parent / "package_data/plotly.min.js").read_bytes()
    release = f"v={plotly.__version__}".encode()
    reply = ask(app, "GET", LIBRARY, headers={"Accept-Encoding": "gzip"}, query=release)
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert unpacked(reply) == content
    assert len(reply.body) < len(content) / 3
    for query in (b"", b"v=1.0.0"):
        reply = ask(app, "GET", LIBRARY, query=query)
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.body == content


def test_our_own_files_are_asked_for_again(app: Any) -> None:
    """A new release of the service is a new page, whatever a query says."""
    for address in ("/", "/dashboard/main.js"):
        for query in (b"", b"v="):
            assert ask(app, "GET", address, query=query).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("encoding", ["gzip", ""])
def test_a_slow_reader_costs_no_copy(app: Any, encoding: str) -> None:
    """What is large is handed out a little at a time, as the client takes it."""
    sizes: list[int] = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            sizes.append(len(message.get("body", b"")))
            await send(message)

        await app(scope, receive, sent)

    assert ask(counted, "GET", LIBRARY, headers={"Accept-Encoding": encoding}).status == 200
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= 1 << 18


@pytest.mark.parametrize(
    "name",
    [
        "nope.js",
        "..%2fpage.py",
        "%2e%2e%2fpage.py",
        "page.py",
        "__init__.py",
        "..",
        ".",
        "INDEX.HTML",
        "main.js%00",
        "a" * 500,
    ],
)
def test_only_the_pages_own_files_are_there(app: Any, name: str) -> None:
    """No name leads out of the folder, and a refusal says no more than a sentence."""
    reply = ask(app, "GET", f"/dashboard/{name}")
    assert reply.status == 404
    assert reply.headers["content-type"] == "application/json"
    assert list(reply.json) == ["error"]
    assert len(reply.json["error"]) < 200


def test_files_of_another_kind_are_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an editor leaves in the folder stays there."""
    for name in ("index.html", "main.js~", "notes.txt", ".main.js.swp"):
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    app = application()
    statuses = {path.name: ask(app, "GET", f"/dashboard/{path.name}").status for path in tmp_path.iterdir()}
    assert statuses == {"index.html": 200, "main.js~": 404, "notes.txt": 404, ".main.js.swp": 404}


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js"])
def test_it_is_only_read(app: Any, address: str) -> None:
    """Another method than GET and HEAD is refused."""
    reply = ask(app, "POST", address)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_a_setting_takes_it_away() -> None:
    """Without the dashboard its addresses are as unknown as any, and the rest is there."""
    app = application(dashboard=False)
    for address in ("/", "/dashboard/main.js", LIBRARY):
        reply = ask(app, "GET", address)
        assert reply.status == 404
        assert reply.json == {"error": f"GET {address}: there is no such route"}
    assert ask(app, "GET", "/v2/health/live").status == 200
    assert ask(app, "GET", "/docs").status == 200


@pytest.mark.parametrize("left", ["nothing", "its record"])
def test_it_does_without_the_charts_library(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its package or its file is absent, the page says so to itself and the address is 404."""

    class Empty:
        version = "7.0.0"

        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    def found(name: str) -> Empty:
        if left == "nothing":
            raise page.PackageNotFoundError(name)
        return Empty()

    monkeypatch.setattr(page, "distribution", found)
    app = application()
    assert b'<meta name="plotly" content="">' in ask(app, "GET", "/").body
    reply = ask(app, "GET", LIBRARY)
    assert reply.status == 404
    assert "expected the package plotly on the server" in reply.json["error"]


def test_the_page_has_its_parts() -> None:
    """There is something to check below, of every kind that is served."""
    assert {path.suffix for path in FILES} == set(TYPES)
    assert len(SCRIPTS) > 5


def test_a_file_is_one_noun_long() -> None:
    """As modules are: over 300 lines it has become two."""
    lines = {path.name: len(text(path).splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_a_script_says_what_it_is() -> None:
    """Each begins with a comment that a newcomer can read."""
    assert [path.name for path in SCRIPTS if not re.match(r"// [A-Z]\w*", text(path))] == []


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No file names another host, nor an address that would lose a proxy's prefix."""
    found = {path.name: ABSOLUTE.findall(text(path).replace(NAMESPACE, "")) for path in FILES}
    assert {name: hits for name, hits in found.items() if hits} == {}


@pytest.mark.parametrize("forbidden", [MARKUP, OF_A_TAG], ids=["by a script", "in a tag"])
def test_no_text_becomes_markup(forbidden: re.Pattern[str]) -> None:
    """Names and labels come from strangers: nothing reads a text as elements, code or a style sheet."""
    found = {path.name: forbidden.findall(text(path)) for path in FILES}
    assert {name: hits for name, hits in found.items() if hits} == {}


@pytest.mark.parametrize(
    ("forbidden", "line"),
    [
        (MARKUP, "node.innerHTML = name;"),
        (MARKUP, "setTimeout(`go(${name})`, 1)"),
        (OF_A_TAG, '<p class="a" style="color: red">'),
        (OF_A_TAG, '<button onclick="go()">'),
        (OF_A_TAG, "<script>go()</script>"),
        (ABSOLUTE, 'fetch("/v2/models")'),
        (ABSOLUTE, 'import "https://elsewhere.example/a.js";'),
        (ABSOLUTE, '<link href="/dashboard/styles/page.css">'),
    ],
)
def test_what_is_forbidden_would_be_found(forbidden: re.Pattern[str], line: str) -> None:
    """The patterns of the tests above see such a line."""
    assert forbidden.search(line)


def test_every_reference_leads_to_a_file() -> None:
    """What a script imports, and what the page and a sheet refer to, is there."""
    for path in SCRIPTS:
        for name in map("".join, IMPORTED.findall(text(path))):
            assert name.startswith(("./", "../")), f"{name_of(path)}: {name}"
            assert imported(path, name) in FILES, f"{name_of(path)}: {name}"
    for name in re.findall(r"""(?:src|href)=["']([^"'#]+)["']""", text(FOLDER / "index.html")):
        assert name == "docs" or (FOLDER.parent / urlsplit(name).path).is_file(), name
    for path in FILES:
        for name in (
            re.findall(r"""url\(["']?([^)"']+)["']?\)""", text(path)) if path.suffix == ".css" else ()
        ):
            assert imported(path, name) in FILES, f"{name_of(path)}: {name}"


def imported(path: Path, name: str) -> Path:
    """The file that a relative address in a file leads to."""
    return (path.parent / name).resolve()


def test_every_imported_name_is_exported() -> None:
    """A browser takes nothing of a page where one name is missing."""
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
        for name in (one.split(" as ")[0].strip() for one in names.split(",") if one.strip())
        if name not in exported.get(imported(path, source), ())
    ]
    assert missing == []


def test_no_file_is_left_over() -> None:
    """Every script and sheet is reached from the page."""
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
