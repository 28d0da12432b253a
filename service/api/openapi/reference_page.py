"""The page `/docs`: the OpenAPI document to read and to try, with nothing fetched from elsewhere."""

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

# file of the page: its type
PARTS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


def add_reference(app: FastAPI, access: Authenticator) -> None:
    """Give the application its page, whose parts come out of an installed package."""
    folder = files("fastapi_offline") / "static"
    anyone = [Depends(access.needs("open"))]

    @app.get("/docs", include_in_schema=False, dependencies=anyone)
    async def page() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="turnpike",
            swagger_js_url="docs/swagger-ui-bundle.js",
            swagger_css_url="docs/swagger-ui.css",
            swagger_favicon_url="docs/favicon.png",
        )

    @app.get("/docs/{part}", include_in_schema=False, dependencies=anyone)
    async def asset(part: str) -> Response:
        if part not in PARTS:
            raise NotFoundError(f"/docs: expected one of {', '.join(PARTS)}, got {part[:80]!r}")
        return Response(
            (folder / part).read_bytes(),
            media_type=PARTS[part],
            headers={"Cache-Control": "public, max-age=86400"},
        )

    @app.get("/openapi.json", include_in_schema=False, dependencies=anyone)
    async def document() -> Response:
        # it takes long enough to make for others not to wait for it
        return Response(await asyncio.to_thread(written), media_type="application/json")

    @cache
    def written() -> bytes:
        return orjson.dumps(app.openapi())
