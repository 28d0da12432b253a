"""`create_app`: the whole service as a FastAPI application."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

from tests.support.bundled_requests import BODY, INFER, NAME, ROW
from tests.support.in_process_worker import NoSupervisor
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until
from turnpike import create_app, open_model
from turnpike.service.api.app import Application
from turnpike.service.api.openapi.document import build_document
from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.config.settings import Settings
from turnpike.service.embedded.fastapi_routes import ServiceRoute
from turnpike.service.errors import SettingError

# settings of the server that runs the application, which a server of somebody else has itself
OF_THE_SERVER = {
    *(
        "app",
        "fast_routes",
        "host",
        "port",
        "grpc_port",
        "tls_cert",
        "tls_key",
        "workers",
        "worker_seconds",
        "engine",
    ),
    *("min_replicas", "max_replicas", "replica_requests", "replica_cpus", "replica_gpus", "replica_models"),
    *("max_header", "header_seconds", "idle_seconds", "drain_wait", "drain_seconds", "log_level"),
    # the service has them by `create_app(models, ...)`
    "models",
}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app()


def test_a_prediction_is_the_one_of_the_model(app: FastAPI) -> None:
    with TestClient(app) as client:
        answer = client.post(INFER, json=BODY).json()
    model = open_model(Path(__file__).parents[3] / "service/default" / NAME / "1/model.onnx")
    (expected,) = model.run({"x": ROW})
    np.testing.assert_allclose(answer["outputs"][0]["data"], expected.ravel(), rtol=1e-6)


def test_it_starts_at_the_first_request() -> None:
    """Probes do not wait for that: they say that it is not ready. This client has a loop for each request."""
    client = TestClient(create_app())
    ready = client.get("/v2/health/ready")
    assert ready.status_code == 503
    assert ready.json()["reason"].startswith("the service starts at its first request, which may take")
    assert "FastAPI(lifespan=turnpike.lifespan)" in ready.json()["reason"]
    assert client.get("/v2/models").json() == {"models": [NAME]}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    assert client.post(INFER, json=BODY).status_code == 200


def test_it_starts_with_the_lifespan(app: FastAPI) -> None:
    """Also a second time, with the models that it has."""
    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/v2/health/ready").status_code == 200


def test_it_follows_the_repository(tmp_path: Path) -> None:
    """New versions are found, models are loaded and unloaded on request, and traffic is recorded."""
    put_model(tmp_path, "net", 1)
    with TestClient(create_app(tmp_path, poll=0.05, admin_key="master")) as client:
        assert client.get("/v2/models/net").json()["versions"] == ["1"]
        put_model(tmp_path, "net", 2)
        wait_until(lambda: client.get("/v2/models/net").json()["versions"] == ["2"])
        key = {"X-Api-Key": "master"}
        assert client.post("/v2/repository/models/net/unload", headers=key).status_code == 200
        assert client.get("/v2/models").json() == {"models": []}
        assert client.post("/v2/repository/models/net/load", headers=key).status_code == 200
        assert client.get("/v2/models").json() == {"models": ["net"]}
        assert "turnpike_http_requests_total{" in client.get("/metrics").text


def test_requests_share_runs(app: FastAPI) -> None:
    """The batcher works as in `turnpike serve`: requests that come together are one run."""

    async def ask(count: int) -> list[int]:
        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def one() -> None:
            body = json.dumps(BODY).encode()
            messages = iter([{"type": "http.request", "body": body}])

            async def receive() -> dict[str, Any]:
                return next(messages)

            headers = [(b"host", b"x"), (b"content-length", b"%d" % len(body))]
            scope = {"type": "http", "method": "POST", "path": INFER, "headers": headers, "query_string": b""}
            await app(scope, receive, send)

        statuses: list[int] = []
        await asyncio.gather(*(one() for _ in range(count)))
        return statuses

    async def test() -> tuple[list[int], dict[str, Any]]:
        async with app.router.lifespan_context(app):
            statuses = await ask(16)
            (service,) = {route.service for route in app.routes if hasattr(route, "service")}
            return statuses, service.application.registry.find(NAME).counters.snapshot(0)

    statuses, counts = asyncio.run(test())
    assert statuses == [200] * 16
    assert max(int(rows) for rows in counts["sizes"]) > 1


def test_keys_and_limits_hold() -> None:
    with TestClient(create_app(api_keys=("open-sesame",), max_body=10_000, queue=1)) as client:
        assert client.post(INFER, json=BODY).status_code == 401
        client.headers["X-Api-Key"] = "open-sesame"
        assert client.post(INFER, json=BODY).status_code == 200
        too_large = client.post(INFER, content=b" " * 20_000)
        assert (too_large.status_code, list(too_large.json())) == (413, ["error"])
        assert client.get("/v2/health/live").status_code == 200


def test_errors_are_those_of_the_service(app: FastAPI) -> None:
    with TestClient(app) as client:
        unknown = client.get("/v2/models/none")
        assert unknown.status_code == 404
        assert unknown.json()["error"].startswith("model 'none': expected a model that is served")
        assert client.get("/nothing").json() == {"error": "GET /nothing: there is no such route"}
        wrong = client.delete("/v2/models")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
        assert wrong.json() == {"error": "DELETE /v2/models: expected the method GET or HEAD"}
        assert client.head("/v2/models").status_code == 200
        assert client.get("/v2/models/").status_code == 404


def test_the_page_and_its_files_are_served(app: FastAPI) -> None:
    with TestClient(app) as client:
        assert "<title>" in client.get("/", headers={"Accept": "text/html"}).text
        assert client.get("/").json() == {"status": "alive"}
        assert client.get("/dashboard/main.js").headers["content-type"].startswith("text/javascript")
        assert "swagger-ui" in client.get("/docs").text
        assert client.get("/docs/swagger-ui.css").status_code == 200


def test_the_document_is_the_one_of_turnpike_serve(app: FastAPI) -> None:
    """Routes that the user adds are in it, too."""
    extended = create_app()

    @extended.get("/mine")
    def mine() -> dict[str, int]:
        raise HTTPException(418, "short and stout")

    application = Application(Settings(), NoSupervisor())
    expected = json.loads(json.dumps(build_document(application.router.routes)))
    with TestClient(app) as client:
        assert client.get("/openapi.json").json() == expected
    with TestClient(extended) as client:
        document = client.get("/openapi.json").json()
        assert client.get("/mine").json() == {"detail": "short and stout"}
    assert document["paths"].pop("/mine")["get"]["operationId"] == "mine_mine_get"
    assert document["paths"] == expected["paths"]


def test_every_route_is_a_route_of_fastapi(app: FastAPI) -> None:
    """FastAPI adds only /openapi.json, in place of ours. HEAD has routes of its own."""
    application = Application(Settings(), NoSupervisor())
    declared = {(route.method, route.pattern) for route in application.router.routes}
    declared -= {("GET", "/openapi.json")}
    routes = [route for route in app.routes if isinstance(route, ServiceRoute)]
    assert [route.path for route in app.routes if route not in routes] == ["/openapi.json"]
    assert {(method, route.path) for route in routes for method in route.methods} == {
        *declared,
        *(("HEAD", path) for method, path in declared if method == "GET"),
    }


def test_one_process_can_have_several_services(tmp_path: Path) -> None:
    put_model(tmp_path, "mine", 1)
    first, second = create_app(tmp_path), create_app()
    with TestClient(first) as one, TestClient(second) as other:
        assert one.get("/v2/models").json() == {"models": ["mine"]}
        assert other.get("/v2/models").json() == {"models": [NAME]}


def test_one_service_has_one_event_loop(app: FastAPI) -> None:
    """Its queues belong to that loop."""
    with TestClient(app), pytest.raises(RuntimeError, match="expected one event loop"):
        TestClient(app).get("/v2/models")


def test_compressed_bodies_take_turns_in_each_event_loop() -> None:
    """The lock for that belongs to one loop."""
    app = create_app(max_inflate_ratio=100_000)
    body = gzip.compress(json.dumps(BODY).encode() + b" " * (4 << 20))

    async def ask() -> list[int]:
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            headers = {"Content-Encoding": "gzip"}
            asked = (client.post(INFER, content=body, headers=headers) for _ in range(3))
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert [asyncio.run(ask()) for _ in range(2)] == [[200] * 3] * 2


def test_a_start_that_fails_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the lifespan, or by each request, until it succeeds."""
    folder = tmp_path / "models"
    folder.mkdir()
    app = create_app(folder, dashboard=False)
    folder.rmdir()
    with pytest.raises(SettingError, match="models"), TestClient(app):
        pass
    client = TestClient(app)
    assert client.get("/v2/health/ready").status_code == 503
    answer = client.get("/v2/models")
    assert answer.status_code == 503
    assert answer.json() == {"error": "the service cannot start; its log says why"}
    assert "the service cannot start" in caplog.text
    folder.mkdir()
    assert client.get("/v2/models").json() == {"models": []}


def test_a_folder_without_models_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As by `turnpike serve`: it may be the wrong one."""
    with TestClient(create_app(tmp_path)):
        assert f"no model in '{tmp_path}' yet" in caplog.text
    (tmp_path / "notes.txt").touch()
    with TestClient(create_app(tmp_path)):
        assert f"no model in '{tmp_path}', which holds other things (notes.txt)" in caplog.text


def test_settings_come_from_arguments_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_model(tmp_path, "net", 1)
    monkeypatch.setenv("TURNPIKE_MODELS", str(tmp_path))
    monkeypatch.setenv("TURNPIKE_DASHBOARD", "false")
    monkeypatch.setenv("TURNPIKE_PORT", "1")
    with TestClient(create_app(docs=False)) as client:
        assert client.get("/v2/models").json() == {"models": ["net"]}
        assert client.get("/dashboard/main.js").status_code == 404
        assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 404


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": 8000}, "port: belongs to the server that runs the application"),
        ({"max_row": 1}, "max_row: there is no such setting; did you mean max_rows?"),
        ({"max_rows": 0}, "max_rows: expected a whole number from 1, got 0"),
        ({"models": "nowhere"}, "models: expected"),
        ({"max_held": 8}, "max_held: expected at least the 67108864 bytes of max_body, got 8"),
        ({"precision": "bf16"}, "precision: expected fp32 with device cpu, got bf16, which needs device"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    models = settings.pop("models", None)
    with pytest.raises(SettingError) as error:
        create_app(models, **settings)
    assert str(error.value).startswith(message)


def test_each_setting_is_of_the_service_or_of_the_server() -> None:
    """`ServiceSettings` lists the settings for type checkers."""
    names = set(Settings.model_fields)
    assert set(ServiceSettings.__annotations__) == names - OF_THE_SERVER
    assert names > OF_THE_SERVER


def test_a_thread_of_the_user_may_serve_it(app: FastAPI) -> None:
    """Signals, the log and the garbage collector of the process stay as they are."""
    answers: list[int] = []

    def serve() -> None:
        with TestClient(app) as client:
            answers.append(client.post(INFER, json=BODY).status_code)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(30)
    assert answers == [200]


def test_a_probe_that_began_a_start_which_failed_keeps_nobody_waiting(tmp_path: Path) -> None:
    """In one event loop: the request after it tries again."""
    folder = tmp_path / "models"
    put_model(folder, "net", 1)
    app = create_app(folder)
    hidden = folder.rename(tmp_path / "hidden")

    async def test() -> tuple[int, int, dict[str, Any]]:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            first = await client.get("/v2/health/ready")
            while (await client.get("/v2/models")).status_code != 503:
                await asyncio.sleep(0.01)
            second = await client.get("/v2/models")
            hidden.rename(folder)
            return first.status_code, second.status_code, (await client.get("/v2/models")).json()

    assert asyncio.run(test()) == (503, 503, {"models": ["net"]})
