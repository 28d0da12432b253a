"""Routing by method and path."""

from __future__ import annotations

import asyncio
import random

import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Match as StarletteMatch
from starlette.routing import Route as StarletteRoute

from tests.support.fake_request import FakeRequest
from tests.support.in_process_worker import load_worker
from turnpike.service.requests import router as module
from turnpike.service.requests.request import Request, RequestHead
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Match, Router


@pytest.fixture(scope="module")
def router() -> Router:
    """All routes of the service."""
    return load_worker().app.router


def find(router: Router, path: str, method: str = "POST") -> Match:
    return router.match(RequestHead(method, path, path, b"", []))


@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        ("/v2/models/net/infer", "infer", {"model": "net"}),
        ("/v2/models/net/versions/3/infer", "infer_version", {"model": "net", "version": "3"}),
        ("/v1/models/net:predict", "predict", {"model": "net"}),
        ("/v1/models/net/versions/3:predict", "predict_version", {"model": "net", "version": "3"}),
        ("/v1/models/a:b:predict", "predict", {"model": "a:b"}),
        ("/v2/models/net/gates", "gates", {"model": "net"}),
        ("/v2/models/net/versions/3/lesion", "lesion_version", {"model": "net", "version": "3"}),
    ],
)
def test_each_path_has_its_route(router: Router, path: str, name: str, params: dict[str, str]) -> None:
    match = find(router, path)
    assert (match.route.name, dict(match.params), match.route.level) == (name, params, "api")
    assert find(router, path) is match


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "/v2/models/net/infer/",
        "//v2/models/net/infer",
        "/v2/models//infer",
        "/v2/models/net/extra",
        "/v2/models/net/extra/infer",
        "/v2/repository/models/net/extra",
        "/v2/models/net/infer\n",
    ],
)
def test_other_paths_go_to_fastapi(router: Router, path: str) -> None:
    assert find(router, path).route.name == "fallback"


def test_a_wrong_method_is_refused(router: Router) -> None:
    """The error names the allowed method, and is counted under the route."""
    match = find(router, "/v2/models/net/infer", "GET")
    assert match.route.label == "/v2/models/{model}/infer"
    with pytest.raises(HTTPException) as raised:
        asyncio.run(match.route.endpoint(FakeRequest()))  # type: ignore[arg-type]
    assert (raised.value.status_code, raised.value.headers) == (405, {"Allow": "POST"})
    assert find(router, "/v2/models/net/samples", "GET").route.name == "samples"


def test_routes_equal_those_of_starlette(router: Router) -> None:
    """Starlette's own matching of the same patterns is the reference."""
    generator = random.Random(3)
    parts = ["", "v1", "v2", "models", "net", "n:predict", "versions", "1", "1:predict", "infer", "gates"]
    parts += ["lesion", "profile", "drift", "samples", ".", "..", "infer?", "%2e", "a~b"]
    starlette_routes = [StarletteRoute(route.label, object(), name=route.name) for route in router.routes]
    hits = 0
    for _ in range(6000):
        words = generator.choices(parts, k=generator.randrange(1, 7))
        if generator.random() < 0.5:
            words[:2] = generator.choice([["v1", "models"], ["v2", "models"]])
        path = "/" + "/".join(words)
        scope = {"type": "http", "method": "POST", "path": path, "root_path": ""}
        expected = next(
            (route.name for route in starlette_routes if route.matches(scope)[0] is not StarletteMatch.NONE),
            "fallback",
        )
        match = find(router, path)
        assert match.route.name == expected
        hits += expected != "fallback"
    assert hits > 40


def test_the_path_cache_is_bounded() -> None:
    """A client that always asks for new paths, or for very long ones, must not fill the memory."""

    async def endpoint(request: Request) -> Response:
        return Response(b"")

    router = Router(endpoint)
    for number in range(2 * module.MAX_CACHED_MATCHES + 1):
        find(router, f"/{number}")
        assert len(router._matches) <= module.MAX_CACHED_MATCHES
    before = len(router._matches)
    find(router, "/" + "m" * module.MAX_CACHED_PATH_LENGTH)
    assert len(router._matches) == before
