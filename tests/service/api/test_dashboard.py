"""How the files of the dashboard are served."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import plotly
import pytest

from tests.support import asgi
from tests.support.asgi import Reply
from tests.support.dashboard_files import FILES, FOLDER, SCRIPTS, TYPES, name_of
from tests.support.in_process_worker import NoSupervisor
from turnpike.service.api import dashboard
from turnpike.service.api.app import Application
from turnpike.service.config.settings import Settings

LIBRARY = "/dashboard/plotly.js"
# what Chromium sends
BROWSER = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
ALIVE = {"status": "alive"}


def ask(app: Any, method: str, path: str, headers: dict[str, str] | None = None, **options: Any) -> Reply:
    """The response to a browser."""
    return asgi.ask(app, method, path, headers={"Accept": BROWSER, **(headers or {})}, **options)


def make_app(**settings: Any) -> Any:
    return Application(Settings(access_log=False, **settings), NoSupervisor())


@pytest.fixture(scope="module")
def app() -> Any:
    """A service with keys; the dashboard is served without one."""
    return make_app(api_keys=("key",))


def app_with_files(folder: Path) -> Any:
    """An application whose dashboard has the files in this folder."""
    with patch.object(dashboard.add_routes, "__defaults__", (folder,)):
        return make_app()


def decompressed(reply: Reply) -> bytes:
    return gzip.decompress(reply.body) if reply.headers.get("content-encoding") == "gzip" else reply.body


def test_the_page_is_at_the_root(app: Any) -> None:
    for query in (b"", b"model=digits-10"):
        reply = ask(app, "GET", "/", query=query)
        assert reply.status == 200
        assert reply.headers["content-type"] == TYPES[".html"]
        assert b"<title>turnpike</title>" in reply.body
    version = plotly.__version__
    assert f'<meta name="plotly" content="{version}">'.encode() in reply.body
    preload = re.compile(rb'<link rel="modulepreload" href="dashboard/([a-z0-9_/]+\.js)">\n')
    original = preload.sub(b"", reply.body).replace(version.encode(), b"")
    assert original == (FOLDER / "index.html").read_bytes()
    modules = {name_of(path) for path in SCRIPTS} - {"shell/early_theme.js"}
    assert {module.decode() for module in preload.findall(reply.body)} == modules


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("TEXT/HTML;charset=utf-8", True),
        ("application/json;q=0.5, text/html ; q=0.5", True),
        ("", False),
        # curl, requests and KServe's client
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0", False),
        ("text/html;q=nan", False),
        ("text/*;q=1", False),
    ],
)
def test_only_browsers_get_the_page(app: Any, accept: str, page: bool) -> None:
    """Other clients get the answer of KServe's first protocol. The header Vary says what it depends on."""
    for known in ({}, {"If-None-Match": '"other"'}):
        reply = ask(app, "GET", "/", headers={"Accept": accept, **known})
        assert reply.status == 200
        assert reply.headers["vary"] == ("Accept, Accept-Encoding" if page else "Accept")
        if page:
            assert b"<title>turnpike</title>" in reply.body
        else:
            assert reply.json == ALIVE
            assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js", "/dashboard/styles/tokens.css", LIBRARY])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_file_has_the_security_headers(app: Any, address: str, method: str) -> None:
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
    """Files are unchanged and have their media type; only index.html gets the version and the modules."""
    for path in FILES:
        reply = ask(app, "GET", f"/dashboard/{name_of(path)}", headers=headers)
        assert reply.status == 200
        assert reply.headers["content-type"] == TYPES[path.suffix]
        assert ("content-encoding" in reply.headers) == bool(headers)
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert reply.headers["vary"] == "Accept-Encoding"
        if path.name != "index.html":
            assert decompressed(reply) == path.read_bytes()


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip; q=0.00", "x-gzip"])
def test_gzip_is_only_sent_to_clients_that_accept_it(app: Any, accepted: str) -> None:
    reply = ask(app, "GET", "/dashboard/main.js", headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in reply.headers
    assert reply.body == (FOLDER / "main.js").read_bytes()


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js", LIBRARY])
def test_a_matching_etag_gives_304(app: Any, address: str) -> None:
    """The ETag is that of the content: the same in every process and for every encoding."""
    etag = ask(app, "GET", address).headers["etag"]
    assert ask(make_app(), "GET", address, headers={"Accept-Encoding": "gzip"}).headers["etag"] == etag
    for known in (etag, f'"other", {etag}', etag.removeprefix("W/")):
        reply = ask(app, "GET", address, headers={"If-None-Match": known})
        assert (reply.status, reply.body) == (304, b"")
        assert reply.headers["etag"] == etag
        assert "cache-control" in reply.headers
        assert "content-length" not in reply.headers
    assert ask(app, "GET", address, headers={"If-None-Match": '"other"'}).status == 200


def test_different_files_have_different_etags(app: Any) -> None:
    etags = [
        ask(app, "GET", f"/dashboard/{name_of(path)}").headers["etag"]
        for path in FILES
        if path.stat().st_size
    ]
    assert len(set(etags)) == len(etags)


def test_files_are_cached_until_a_restart(tmp_path: Path) -> None:
    """All files that a process sends fit together. A change is visible after a restart."""
    (tmp_path / "index.html").write_text("old")
    app = app_with_files(tmp_path)
    assert ask(app, "GET", "/").body == b"old"
    (tmp_path / "index.html").write_text("new")
    assert ask(app, "GET", "/").body == b"old"
    assert ask(app_with_files(tmp_path), "GET", "/").body == b"new"


def test_the_chart_library_comes_from_its_package(app: Any) -> None:
    """It may be cached for ever if the URL names its version, as the page's does."""
    content = (Path(plotly.__file__).parent / "package_data/plotly.min.js").read_bytes()
    version = f"v={plotly.__version__}".encode()
    reply = ask(app, "GET", LIBRARY, headers={"Accept-Encoding": "gzip"}, query=version)
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert decompressed(reply) == content
    assert len(reply.body) < len(content) / 3
    for query in (b"", b"v=1.0.0"):
        reply = ask(app, "GET", LIBRARY, query=query)
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.body == content


def test_files_of_the_dashboard_are_revalidated(app: Any) -> None:
    """A new release of the service has a new page."""
    for address in ("/", "/dashboard/main.js"):
        for query in (b"", b"v="):
            assert ask(app, "GET", address, query=query).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("encoding", ["gzip", ""])
def test_large_files_are_sent_in_small_pieces(app: Any, encoding: str) -> None:
    """The next piece is sent when the client has read the previous one."""
    sizes: list[int] = []

    async def counting_app(scope: Any, receive: Any, send: Any) -> None:
        async def counting_send(message: Any) -> None:
            sizes.append(len(message.get("body", b"")))
            await send(message)

        await app(scope, receive, counting_send)

    assert ask(counting_app, "GET", LIBRARY, headers={"Accept-Encoding": encoding}).status == 200
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= 1 << 18


@pytest.mark.parametrize(
    "name",
    [
        "nope.js",
        "..%2fapi%2fdashboard.py",
        "%2e%2e%2fapi%2fdashboard.py",
        "../api/dashboard.py",
        "shell/../../api/dashboard.py",
        "shell",
        "shell/",
        "/main.js",
        "theme.js",
        "__init__.py",
        "..",
        ".",
        "INDEX.HTML",
        "main.js%00",
        "a" * 500,
    ],
)
def test_only_files_of_the_dashboard_are_served(app: Any, name: str) -> None:
    reply = ask(app, "GET", f"/dashboard/{name}")
    assert reply.status == 404
    assert reply.headers["content-type"] == "application/json"
    assert list(reply.json) == ["error"]
    assert len(reply.json["error"]) < 200


def test_files_of_another_kind_are_not_served(tmp_path: Path) -> None:
    """An editor may leave such files in the folder."""
    others = ("main.js~", "notes.txt", ".main.js.swp")
    for name in ("index.html", *others):
        (tmp_path / name).write_text("x")
    app = app_with_files(tmp_path)
    assert ask(app, "GET", "/dashboard/index.html").status == 200
    for name in others:
        assert "expected a file of the dashboard" in ask(app, "GET", f"/dashboard/{name}").json["error"]


@pytest.mark.parametrize("address", ["/", "/dashboard/main.js"])
def test_only_get_and_head_are_allowed(app: Any, address: str) -> None:
    reply = ask(app, "POST", address)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_a_setting_disables_the_dashboard() -> None:
    app = make_app(dashboard=False)
    for accept in (BROWSER, "*/*"):
        assert ask(app, "GET", "/", headers={"Accept": accept}).json == ALIVE
    for address in ("/dashboard/main.js", LIBRARY):
        reply = ask(app, "GET", address)
        assert reply.status == 404
        assert reply.json == {"error": f"GET {address}: there is no such route"}
    assert ask(app, "GET", "/v2/health/live").status == 200
    assert ask(app, "GET", "/docs").status == 200


@pytest.mark.parametrize("installed", ["nothing", "metadata only"])
def test_the_page_works_without_the_chart_library(
    installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has an empty version of the library, and the library's URL is 404."""

    class Package:
        version = "7.0.0"

        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    def find_package(name: str) -> Package:
        if installed == "nothing":
            raise dashboard.PackageNotFoundError(name)
        return Package()

    monkeypatch.setattr(dashboard, "distribution", find_package)
    app = make_app()
    assert b'<meta name="plotly" content="">' in ask(app, "GET", "/").body
    reply = ask(app, "GET", LIBRARY)
    assert reply.status == 404
    assert "expected the package plotly to be installed" in reply.json["error"]
