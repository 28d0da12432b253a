"""The application as a whole: every route says whom it lets in, and stands in the documents."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route

from service.api.app import create_app, routed
from service.artifact.low_priority import LOWEST_PRIORITY, Caller, call_directly
from service.config.settings import Settings
from service.http.auth import level_of
from service.registry.registry import ModelRegistry
from service.repository.scan import ModelFile
from service.version import VERSION

ROOT = Path(__file__).parents[3]


class Nobody:
    """A control that knows no other workers."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        raise AssertionError(f"nobody is to be asked for {what}")


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """The routes, with no model loaded."""
    application = create_app(Settings(), Nobody())
    return routed(application.parts, application.is_ready)


def routes(app: FastAPI) -> list[Route]:
    found = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in found if isinstance(route, Route)]


def test_every_route_declares_whom_it_lets_in(app: FastAPI) -> None:
    """Open are health, the page and the reference alone; what changes the service is for the admin."""
    levels: dict[str, set[str]] = {}
    for route in routes(app):
        level = level_of(route)
        assert level is not None, route.path
        levels.setdefault(level, set()).add(route.path)
    assert levels["open"] == {
        "/v2/health/live",
        "/v2/health/ready",
        "/",
        "/dashboard/{file:path}",
        "/docs",
        "/docs/{part}",
        "/openapi.json",
    }
    assert levels["admin"] == {
        "/v2/repository/models/{model}/load",
        "/v2/repository/models/{model}/unload",
    }
    assert len(levels["api"]) > 20


def test_every_endpoint_is_documented(app: FastAPI) -> None:
    """With its method, in docs/reference/http-api.md; and none stands there that is no more."""
    text = (ROOT / "docs/reference/http-api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`((?:GET|POST) /[^`]*)`", text))
    real = {
        f"{method} {route.path.replace('/versions/{version}', '')}"
        for route in routes(app)
        for method in (route.methods or set()) - {"HEAD"}
        if route.path not in {"/v2/", "/dashboard/{file:path}", "/docs/{part}"}
    }
    assert documented == real


def test_every_endpoint_is_in_the_openapi_document(app: FastAPI) -> None:
    """The raw ones, too, with an error for each status that is none of theirs to succeed with."""
    document = app.openapi()
    for route in routes(app):
        if route.path in {"/v2/", "/", "/dashboard/{file:path}", "/docs", "/docs/{part}", "/openapi.json"}:
            continue
        for method in (route.methods or set()) - {"HEAD"}:
            operation = document["paths"][route.path][method.lower()]
            assert "200" in operation["responses"], route.path
            assert {"400", "500"} <= set(operation["responses"]), route.path


def test_there_is_one_version() -> None:
    """The service, the front door and the project agree on it."""
    import turnpike

    assert VERSION == turnpike.VERSION
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_a_model_that_comes_later_is_loaded_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are served go first; while there is none, nobody has to give way."""
    application = create_app(Settings(), Nobody())

    def load(found: ModelFile, call: Caller = call_directly) -> int:
        return call(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    monkeypatch.setattr(application, "_load", load)
    found = ModelFile("net", 1, Path("model.onnx"), (0, 0, 0))
    served: list[Any] = []
    monkeypatch.setattr(ModelRegistry, "models", property(lambda shelf: served))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert application._loaded(found) == own
    served.append(object())
    assert application._loaded(found) == LOWEST_PRIORITY
