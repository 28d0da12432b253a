"""The page /docs (Swagger UI) and /openapi.json. The page loads nothing from other servers."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

import orjson
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse, Response

from turnpike.service.errors import NotFoundError
from turnpike.service.http.static_file import StaticFile
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.router import Route

# files of Swagger UI, which come from the package fastapi_offline, and their media types
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


def add_reference(app: FastAPI, routes: list[Route], auth: Authenticator) -> None:
    """Add the page, its files and the document. `routes` are described by the document."""
    folder = files("fastapi_offline") / "static"
    assets = {name: StaticFile(media_type, (folder / name).read_bytes) for name, media_type in ASSETS.items()}
    document_file = StaticFile("application/json", partial(_encoded_document, routes))
    no_key = [Depends(auth.require("open"))]

    @app.get("/docs", include_in_schema=False, dependencies=no_key)
    async def page() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="turnpike",
            swagger_js_url="docs/swagger-ui-bundle.js",
            swagger_css_url="docs/swagger-ui.css",
            swagger_favicon_url="docs/favicon.png",
        )

    @app.get("/docs/{part}", include_in_schema=False, dependencies=no_key)
    async def asset(part: str, request: Request) -> Response:
        if part not in ASSETS:
            raise NotFoundError(f"/docs: expected one of {', '.join(ASSETS)}, got {part[:80]!r}")
        return await assets[part].response(request)

    @app.get("/openapi.json", include_in_schema=False, dependencies=no_key)
    async def document(request: Request) -> Response:
        return await document_file.response(request)


def _encoded_document(routes: list[Route]) -> bytes:
    # imported at the first request, because few workers are asked for the document
    from turnpike.service.api.openapi.document import build_document

    return orjson.dumps(build_document(routes))
