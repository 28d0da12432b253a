"""The page /docs: its files and the document are sent compressed, and only if the client lacks them."""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Any

import pytest

from tests.support.asgi import ask
from tests.support.in_process_worker import NoSupervisor
from turnpike.service.api.app import Application
from turnpike.service.api.openapi.reference_page import ASSETS
from turnpike.service.config.settings import Settings
from turnpike.service.http.static_file import SECURITY_HEADERS

PATHS = [f"/docs/{name}" for name in ASSETS] + ["/openapi.json"]
POLICY = SECURITY_HEADERS["Content-Security-Policy"]


@pytest.fixture(scope="module")
def app() -> Any:
    return Application(Settings(access_log=False), NoSupervisor())


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_sent_compressed(app: Any, path: str) -> None:
    """The content and its type are the same without compression."""
    plain = ask(app, "GET", path)
    packed = ask(app, "GET", path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert path.endswith(".png") or len(packed.body) < len(plain.body) / 3
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert packed.headers["content-type"] == plain.headers["content-type"]
    if path.startswith("/docs/"):
        file = files("fastapi_offline") / "static" / path.removeprefix("/docs/")
        assert plain.body == file.read_bytes()
    else:
        assert plain.json["openapi"] == "3.1.0"


@pytest.mark.parametrize("path", PATHS)
def test_a_known_file_is_not_sent_again(app: Any, path: str) -> None:
    etag = ask(app, "GET", path).headers["etag"]
    reply = ask(app, "GET", path, headers={"If-None-Match": etag})
    assert (reply.status, reply.body) == (304, b"")


def test_other_files_are_not_served(app: Any) -> None:
    reply = ask(app, "GET", "/docs/redoc.standalone.js")
    assert reply.status == 404
    assert "expected one of swagger-ui-bundle.js" in reply.json["error"]


def test_the_page_has_the_policy_of_the_dashboard(app: Any) -> None:
    """Which allows no script in the page itself."""
    page = ask(app, "GET", "/docs")
    assert page.headers["content-security-policy"] == POLICY
    dashboard = ask(app, "GET", "/", headers={"Accept": "text/html"})
    assert dashboard.headers["content-security-policy"] == POLICY
    assert page.body.count(b"<script") == 2
    assert b"<script>" not in page.body
    start = ask(app, "GET", "/docs/start.js")
    assert start.headers["content-type"] == "text/javascript"
    assert b"SwaggerUIBundle({" in start.body
    assert b"url: 'openapi.json'" in start.body
