"""The page /docs (Swagger UI) and /openapi.json. The page loads nothing from other servers."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.resources import files

import orjson
from fastapi import Depends, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse, Response

from service.errors import NotFoundError
from service.http.auth import Authenticator
from service.http.router import Route

# files of Swagger UI, which come from the package fastapi_offline, and their media types
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


def add_reference(app: FastAPI, routes: list[Route], auth: Authenticator) -> None:
    """Add the page, its files and the document. `routes` are described by the document."""
    folder = files("fastapi_offline") / "static"
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
    async def asset(part: str) -> Response:
        if part not in ASSETS:
            raise NotFoundError(f"/docs: expected one of {', '.join(ASSETS)}, got {part[:80]!r}")
        return Response(
            (folder / part).read_bytes(),
            media_type=ASSETS[part],
            headers={"Cache-Control": "public, max-age=86400"},
        )

    @app.get("/openapi.json", include_in_schema=False, dependencies=no_key)
    async def document() -> Response:
        # building it takes long, so other requests must not wait for it
        return Response(await asyncio.to_thread(encoded_document), media_type="application/json")

    @cache
    def encoded_document() -> bytes:
        # imported at the first request, because few workers are asked for the document
        from service.api.openapi.document import build_document

        return orjson.dumps(build_document(routes))
