"""The service in an application of the user: mounted, included, behind their dependencies and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from fastapi.testclient import TestClient
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

import turnpike
from tests.support.bundled_requests import BODY, NAME
from tests.support.tiny_repository import put_model
from turnpike.service.embedded.fastapi_routes import services_in

INFER = f"/ml/v2/models/{NAME}/infer"

PREDICT = f"/ml/v1/models/{NAME}:predict"


class RefusedError(Exception):
    """Raised by a dependency of the user."""


def login(token: Annotated[str, Header()] = "") -> str:
    if token != "mine":
        raise HTTPException(401, "log in first")
    return token


def included(**options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(turnpike.router(), prefix="/ml", **options)
    return app


def mounted(**options: Any) -> FastAPI:
    app = FastAPI(**options)
    app.mount("/ml", turnpike.create_app())
    return app


@pytest.mark.parametrize("make", [included, mounted])
def test_all_routes_answer_below_the_prefix(make: Callable[[], FastAPI]) -> None:
    """The rest is the user's."""
    app = make()

    @app.get("/mine")
    def mine() -> dict[str, str]:
        return {"hello": "world"}

    with TestClient(app) as client:
        assert client.get("/ml/v2/models").json() == {"models": [NAME]}
        assert client.post(INFER, json=BODY).status_code == 200
        assert client.post(INFER.replace("infer", "versions/1/infer"), json=BODY).status_code == 200
        assert client.head("/ml/v2/models").status_code == 200
        assert client.get("/ml/v2/health/ready").json() == {"live": True, "ready": True}
        wrong = client.get(INFER)
        assert wrong.json() == {"error": f"GET {INFER}: expected the method POST"}
        for path in (PREDICT, PREDICT.replace(":", "/versions/1:")):
            wrong = client.get(path)
            assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
            assert wrong.json() == {"error": f"GET {path}: expected the method POST"}
        assert client.get("/mine").json() == {"hello": "world"}
        assert client.get("/nothing").json() == {"detail": "Not Found"}
        assert client.get("/v2/models").json() == {"detail": "Not Found"}


def test_a_mounted_service_starts_at_its_first_request() -> None:
    """The lifespan of a mounted application does not run."""
    with TestClient(mounted()) as client:
        assert client.get("/ml/v2/health/ready").status_code == 503
        assert client.get("/ml/v2/models").json() == {"models": [NAME]}
        assert client.get("/ml/v2/health/ready").status_code == 200


def test_the_lifespan_starts_what_is_mounted(tmp_path: Path) -> None:
    """At any depth, with a middleware around it, and by a lifespan of one's own."""
    put_model(tmp_path, "net", 1)
    inner = FastAPI()
    inner.mount("/deep", turnpike.create_app(tmp_path))
    events: list[str] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[None]:
        async with turnpike.lifespan(app):
            events.append("begin")
            yield
        events.append("end")

    wrapped = Mount("/wrapped", turnpike.create_app(), middleware=[Middleware(GZipMiddleware)])
    app = FastAPI(lifespan=own, routes=[wrapped])
    app.mount("/inner", inner)
    assert len(set(services_in(app.routes))) == 2
    with TestClient(app) as client:
        assert client.get("/wrapped/v2/health/ready").status_code == 200
        assert client.get("/inner/deep/v2/health/ready").status_code == 200
        assert client.get("/inner/deep/v2/models").json() == {"models": ["net"]}
        assert events == ["begin"]
    assert events == ["begin", "end"]


def test_an_included_router_starts_with_the_application() -> None:
    """Also beside `turnpike.lifespan`."""
    app = FastAPI(lifespan=turnpike.lifespan)
    outer = APIRouter()
    outer.include_router(turnpike.router(), prefix="/ml")
    app.include_router(outer)
    with TestClient(app) as client:
        assert client.get("/ml/v2/health/ready").status_code == 200


def test_dependencies_decide_before_the_service() -> None:
    """Those of the application, of the router and of `include_router`; overrides replace them."""
    for app in (included(dependencies=[Depends(login)]), FastAPI(dependencies=[Depends(login)])):
        if len(app.routes) < 10 and not list(services_in(app.routes)):
            app.include_router(turnpike.router(), prefix="/ml")
        with TestClient(app) as client:
            refused = client.post(INFER, json=BODY)
            assert (refused.status_code, refused.json()) == (401, {"detail": "log in first"})
            assert client.post(INFER, json=BODY, headers={"token": "mine"}).status_code == 200
            app.dependency_overrides[login] = lambda: "anybody"
            assert client.post(INFER, json=BODY).status_code == 200


def test_dependencies_with_yield_end_after_the_answer() -> None:
    events: list[str] = []

    async def session() -> AsyncIterator[None]:
        events.append("open")
        yield
        events.append("closed")

    with TestClient(included(dependencies=[Depends(session)])) as client:
        assert client.post(INFER, json=BODY).status_code == 200
    assert events == ["open", "closed"]


def test_middleware_and_exception_handlers_of_the_user_work() -> None:
    """Their errors have their form, ours have ours."""
    app = included(dependencies=[Depends(raise_if_asked)])

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> JSONResponse:
        return JSONResponse({"refused": str(error)}, 418)

    @app.middleware("http")
    async def mark(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer = await call_next(request)
        answer.headers["X-Mine"] = "1"
        return answer

    app.add_middleware(GZipMiddleware, minimum_size=1)
    with TestClient(app) as client:
        answer = client.get("/ml/v2/models/stats")
        assert (answer.status_code, answer.headers["x-mine"]) == (200, "1")
        assert answer.headers["content-encoding"] == "gzip"
        broken = client.post(INFER, content=b"{")
        assert (broken.status_code, list(broken.json())) == (400, ["error"])
        assert client.get("/ml/v2/models", headers={"raise": "please"}).json() == {"refused": "please"}


def test_a_dependency_that_reads_the_body_leaves_it_to_the_service() -> None:
    """FastAPI's own parameters of the body do, too."""
    seen: list[int] = []

    async def read(request: Request) -> None:
        seen.append(len(await request.body()))

    def parsed(inputs: Annotated[list[Any], Body(embed=True)]) -> None:
        seen.append(len(inputs))

    for dependency in (read, parsed):
        with TestClient(included(dependencies=[Depends(dependency)])) as client:
            assert client.post(INFER, json=BODY).status_code == 200
    assert seen[0] > 100
    assert seen[1] == 1


def raise_if_asked(request: Request) -> None:
    if reason := request.headers.get("raise"):
        raise RefusedError(reason)


def test_middleware_that_reads_the_body_leaves_it_to_the_service() -> None:
    """BaseHTTPMiddleware replays what it has read."""
    seen: list[int] = []

    class Reader(BaseHTTPMiddleware):
        async def dispatch(
            self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            seen.append(len(await request.body()))
            return await call_next(request)

    app = mounted()
    app.add_middleware(Reader)
    with TestClient(app) as client:
        assert client.post(INFER, json=BODY).status_code == 200
    assert seen[0] > 100


@pytest.mark.parametrize("make", [included, mounted])
def test_a_root_path_is_no_part_of_the_routes(make: Callable[[], FastAPI]) -> None:
    """ASGI servers have it in the path."""
    app = make()
    with TestClient(app, root_path="/behind/proxy") as client:
        assert client.get("/behind/proxy/ml/v2/models").json() == {"models": [NAME]}


def test_the_document_of_the_application_has_the_routes_of_the_service() -> None:
    """Without references, since the user's components may have the same names. Two services have no clash."""
    app = FastAPI()
    app.include_router(turnpike.router(), prefix="/one", tags=["models"])
    app.include_router(turnpike.router(), prefix="/other")
    document = app.openapi()
    operation = document["paths"]["/one/v2/models/{model}/infer"]["post"]
    assert operation["tags"][0] == "models"
    assert "inputs" in operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"200", "400", "404", "413", "422", "500", "503"} <= set(operation["responses"])
    assert operation["parameters"][0]["name"] == "model"
    assert operation["requestBody"]["content"]["application/json"]["examples"]
    assert "$ref" not in str(operation)
    ids = [entry["operationId"] for path in document["paths"].values() for entry in path.values()]
    assert len(set(ids)) == len(ids)


def test_a_router_has_pages_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its arguments or by the environment."""
    with TestClient(included()) as client:
        assert client.get("/ml/", headers={"Accept": "text/html"}).json() == {"status": "alive"}
        assert client.get("/ml/dashboard/main.js").status_code == 404
    app = FastAPI()
    app.include_router(turnpike.router(dashboard=True), prefix="/ml")
    with TestClient(app) as client:
        assert "<title>" in client.get("/ml/", headers={"Accept": "text/html"}).text
        assert client.get("/ml/dashboard/main.js").status_code == 200
    monkeypatch.setenv("TURNPIKE_DASHBOARD", "true")
    with TestClient(included()) as client:
        assert client.get("/ml/dashboard/main.js").status_code == 200


def test_background_tasks_of_dependencies_run_after_the_answer() -> None:
    done: list[str] = []

    def later(tasks: BackgroundTasks) -> None:
        tasks.add_task(done.append, "done")

    with TestClient(included(dependencies=[Depends(later)])) as client:
        assert client.get("/ml/v2/models").status_code == 200
    assert done == ["done"]
