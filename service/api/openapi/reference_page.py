"""The page /docs (Swagger UI) and /openapi.json. The page loads nothing from other servers."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files

import orjson

from turnpike.service.errors import NotFoundError
from turnpike.service.http.asgi import AsgiEndpoint
from turnpike.service.http.static_file import SECURITY_HEADERS, StaticFile
from turnpike.service.requests.request import Request
from turnpike.service.requests.router import Router

# files of Swagger UI, which come from the package fastapi_offline, and their media types
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
# the script that starts Swagger UI: FastAPI writes it into the page, where the page's policy forbids scripts
START_SCRIPT = "start.js"
INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def add_routes(router: Router) -> None:
    """Add the page, its files and the document, which describes the routes of the router."""
    assets = {
        name: AsgiEndpoint(StaticFile(media_type, partial(_asset, name), headers=SECURITY_HEADERS))
        for name, media_type in ASSETS.items()
    }
    start = StaticFile("text/javascript", lambda: _page_and_script()[1], headers=SECURITY_HEADERS)
    assets[START_SCRIPT] = AsgiEndpoint(start)

    async def asset(request: Request) -> None:
        name = request.path_params["file"]
        if name not in assets:
            raise NotFoundError(f"/docs: expected one of {', '.join(ASSETS)}, got {name[:80]!r}")
        await assets[name](request)

    # made at the first request, in a thread, because few workers are asked for them
    page = AsgiEndpoint(
        StaticFile("text/html; charset=utf-8", lambda: _page_and_script()[0], headers=SECURITY_HEADERS)
    )
    document = AsgiEndpoint(StaticFile("application/json", lambda: _document(router)))
    router.add("GET", "/docs", "open", page, "docs", {})
    router.add("GET", "/docs/{file}", "open", asset, "docs_file", {})
    router.add("GET", "/openapi.json", "open", document, "openapi", {})


def _asset(name: str) -> bytes:
    # the package imports FastAPI, which takes 0.1 s and 5 MB
    return (files("fastapi_offline") / "static" / name).read_bytes()


def _page_and_script() -> tuple[bytes, bytes]:
    """The page, and the script that it loads."""
    from fastapi.openapi.docs import get_swagger_ui_html

    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="turnpike",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )
    scripts = INLINE_SCRIPT.findall(bytes(page.body))
    tag = b'<script src="docs/%b"></script>' % START_SCRIPT.encode()
    return INLINE_SCRIPT.sub(tag, bytes(page.body)), b"".join(scripts)


def _document(router: Router) -> bytes:
    from turnpike.service.api.openapi.document import build_document

    return orjson.dumps(build_document(router.routes))
