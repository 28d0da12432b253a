"""`turnpike serve --app`: an application of the user with our supervisor, workers and drain."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.support.bundled_requests import BODY, NAME
from tests.support.live_server import Server, environment, serving, worker_processes
from tests.support.python_path import python_path
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until

PLAIN = """
import asyncio
import sys
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

import turnpike


@asynccontextmanager
async def lifespan(app):
    async with turnpike.lifespan(app):
        yield {"started": "yes"}
    print("ended", file=sys.stderr, flush=True)


app = FastAPI(lifespan=lifespan)


@app.get("/ml/v2/models/mine")
def shadow():
    return {"shadow": True}


app.mount("/ml", turnpike.create_app(MODELS))


@app.get("/mine")
def mine(request: Request):
    return {"started": request.state.started}


@app.post("/echo")
async def echo(request: Request):
    return {"length": len(await request.body())}


@app.get("/slow")
async def slow():
    await asyncio.sleep(1)
    return "late"


@app.get("/stream")
def stream():
    return StreamingResponse((b"%d\\n" % number for number in range(3)), media_type="text/plain")


@app.head("/head")
def head(request: Request):
    return Response(headers={"X-Method": request.method})


@app.get("/headers")
def headers(request: Request):
    request.scope["headers"].append((b"added", b"1"))
    return {"added": sum(name == b"added" for name, _ in request.scope["headers"])}


@app.get("/broken")
def broken():
    raise RuntimeError("of the user")
"""
GUARDED = """
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import turnpike

app = FastAPI()
app.include_router(turnpike.router(), prefix="/ml")


@app.middleware("http")
async def login(request: Request, call_next):
    if request.headers.get("token") != "mine":
        return JSONResponse({"detail": "log in first"}, 401)
    return await call_next(request)
"""
INFER = f"/ml/v2/models/{NAME}/infer"


@contextmanager
def serving_app(folder: Path, code: str, *options: object, models: Path | None = None) -> Iterator[Server]:
    """A service whose application has this code."""
    argument = repr(None if models is None else str(models))
    (folder / "my_app.py").write_text(code.replace("MODELS", argument))
    with serving("--app", "my_app:app", *options, PYTHONPATH=f"{folder}:{python_path()}") as server:
        yield server


def test_the_application_and_the_service_answer(tmp_path: Path) -> None:
    """With its lifespan, streams and errors; counters are those of all workers."""
    with serving_app(tmp_path, PLAIN, "--workers", 2) as server:
        assert server.get("/mine").json() == {"started": "yes"}
        assert server.get("/stream").text == "0\n1\n2\n"
        assert server.post("/echo", "x" * 100_000).json() == {"length": 100_002}
        assert requests.head(f"{server.url}/head", timeout=10).headers["x-method"] == "HEAD"
        for _ in range(3):
            assert server.get("/headers").json() == {"added": 1}
        broken = server.get("/broken")
        assert broken.status_code == 500
        assert server.get("/nothing").json() == {"detail": "Not Found"}
        assert server.get("/ml/v2/models").json() == {"models": [NAME]}
        for _ in range(20):
            assert requests.post(server.url + INFER, json=BODY, timeout=10).status_code == 200
        metrics = server.get("/ml/metrics").text
        assert "turnpike_workers 2.0" in metrics
        assert f'turnpike_model_rows_total{{model="{NAME}",version="1"}} 20.0' in metrics
        assert 'turnpike_http_requests_total{method="GET",route="/mine",status="200"} 1.0' in metrics
        assert server.stop() == 0
    lines = server.logged()
    paths = [line["path"] for line in lines if line.get("logger") == "access"]
    assert paths.count(INFER) == 20
    assert "/mine" in paths
    assert "of the user" in server.output
    assert "ended" in server.output


def test_a_route_of_the_user_that_comes_first_answers(tmp_path: Path) -> None:
    """Although the service has one for the same path."""
    with serving_app(tmp_path, PLAIN) as server:
        assert server.get("/ml/v2/models/mine").json() == {"shadow": True}
        assert server.get(f"/ml/v2/models/{NAME}").json()["name"] == NAME


def test_middleware_of_the_user_refuses_a_prediction(tmp_path: Path) -> None:
    """All routes go through the application. The log says why."""
    with serving_app(tmp_path, GUARDED) as server:
        refused = server.post(INFER, BODY)
        assert (refused.status_code, refused.json()) == (401, {"detail": "log in first"})
        answer = server.post(INFER, BODY, headers={"token": "mine"})
        assert answer.status_code == 200
        ids = [value for name, value in answer.raw.headers.items() if name.lower() == "x-request-id"]
        assert len(ids) == 1
        assert server.post(INFER, b"{", headers={"token": "mine"}).status_code == 400
        assert server.stop() == 0
    assert "because of its middleware" in server.output
    logged = [line for line in server.logged() if line.get("logger") == "access"]
    assert [line["status"] for line in logged if line["path"] == INFER] == [401, 200, 400]
    assert ids[0] in [line["id"] for line in logged]


def test_fast_routes_leave_the_middleware_out(tmp_path: Path) -> None:
    with serving_app(tmp_path, GUARDED, "--fast-routes") as server:
        assert server.post(INFER, BODY).status_code == 200
        assert server.get("/openapi.json").status_code == 401
        assert server.stop() == 0
    assert "requests for the routes of the service skip the application's middleware" in server.output


def test_requests_of_the_application_are_answered_after_sigterm(tmp_path: Path) -> None:
    with serving_app(tmp_path, PLAIN, "--workers", 2) as server:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.get("/slow").status_code)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        assert server.stop() == 0
        for thread in threads:
            thread.join(10)
    assert answers == [200] * 6
    assert "no request was cut off" in server.output


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Its counts stay."""
    with serving_app(tmp_path, PLAIN) as server:
        assert server.post(INFER, BODY).status_code == 200
        time.sleep(1.5)
        worker_processes(server)[0].send_signal(signal.SIGKILL)
        wait_until(lambda: _answers(server))
        assert server.post(INFER, BODY).status_code == 200
        assert (
            f'turnpike_model_rows_total{{model="{NAME}",version="1"}} 2.0' in server.get("/ml/metrics").text
        )


def _answers(server: Server) -> bool:
    try:
        return server.get("/ml/v2/health/ready").status_code == 200
    except requests.ConnectionError:
        return False


def test_new_versions_are_served_by_all_workers(tmp_path: Path) -> None:
    """The supervisor follows the repository that the application names."""
    put_model(tmp_path / "models", "net", 1)
    code = PLAIN.replace("create_app(", "create_app(poll=0.1, models=")
    with serving_app(tmp_path, code, "--workers", 2, models=tmp_path / "models") as server:
        assert server.get("/ml/v2/models/net").json()["versions"] == ["1"]
        put_model(tmp_path / "models", "net", 2)
        wait_until(
            lambda: all(
                requests.get(f"{server.url}/ml/v2/models/net", timeout=10).json()["versions"] == ["2"]
                for _ in range(10)
            )
        )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--app", "nowhere:app"], "", "--app: expected a module that can be imported, got 'nowhere'"),
        (["--app", "nowhere:app"], "", "(the current folder)"),
        (
            ["--app", "my_app:other"],
            GUARDED,
            "--app: expected an application in my_app, found no 'other'; did you mean my_app:app?",
        ),
        (["--app", "my_app"], GUARDED, "expected MODULE:NAME, such as my_app:app, got 'my_app'; did you"),
        (["--app", "./my_app.py:app"], GUARDED, "got './my_app.py:app'; did you mean my_app:app?"),
        (["--app", "my_app:app"], "app = object()", "found 0"),
        (
            ["--app", "my_app:make_app"],
            "def make_app(): pass",
            "got the function my_app:make_app: call it in my_app, as in `app = make_app()`",
        ),
        (
            ["--app", "my_app:app", "--max-rows", "9"],
            GUARDED.replace("turnpike.router(", "turnpike.router(max_rows=8"),
            "--max-rows: expected no other value than the code of my_app:app sets by max_rows=",
        ),
        (
            ["models", "--app", "my_app:app"],
            GUARDED.replace("turnpike.router(", "turnpike.router('others'"),
            "MODELS: expected no other value than the code of my_app:app sets by models=",
        ),
        (
            ["--app", "my_app:app"],
            GUARDED.replace("turnpike.router(", "turnpike.router(max_held=8"),
            "--app: my_app.py, line 8: max_held: expected at least the 67108864 bytes of max_body, got 8",
        ),
        (["--app", "my_app:app", "--grpc-port", "0"], GUARDED, "--grpc-port: expected none with --app"),
        (["--fast-routes"], "", "--fast-routes: expected an application of your own too (--app)"),
        (["--app", "my_app:app"], "import a_missing_module", "No module named 'a_missing_module'"),
        (
            ["--app", "my_app:app"],
            "def load():\n    raise OSError('no disk')\nload()",
            "--app: my_app.py, line 2 raised OSError as my_app was imported: no disk (the",
        ),
        (["--app", "my_app:app"], "import os\nos._exit(7)", "its process ended with status 7"),
    ],
)
def test_an_application_that_cannot_be_served_stops_the_start(
    options: list[str], code: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "my_app.py").write_text(code)
    for folder in ("models", "others"):
        (tmp_path / folder / "net").mkdir(parents=True)
    command = [sys.executable, "-m", "turnpike", "serve", "--port", "0", *options]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert message in ran.stderr


def test_a_lifespan_that_fails_stops_the_start(tmp_path: Path) -> None:
    code = PLAIN.replace('yield {"started": "yes"}', 'raise RuntimeError("no database")\n        yield {}')
    (tmp_path / "my_app.py").write_text(code.replace("MODELS", "None"))
    command = [sys.executable, "-m", "turnpike", "serve", "--port", "0", "--app", "my_app:app"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode, ran.stderr
    assert "no database" in ran.stderr


def printed_settings(folder: Path, code: str, *options: str, **variables: str) -> str:
    """What `--print-config` prints for an application with this code."""
    (folder / "my_app.py").write_text(code)
    command = [sys.executable, "-m", "turnpike", "serve", "--app", "my_app:app", *options, "--print-config"]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout


def test_print_config_has_the_settings_of_the_code(tmp_path: Path) -> None:
    """Those of the command and of the environment are in force where the code sets none."""
    code = GUARDED.replace(
        "turnpike.router(", "turnpike.router(max_rows=8, api_keys=('secret',), max_depth=9"
    )
    printed = printed_settings(
        tmp_path,
        code,
        "--docs",
        "--queue",
        "7",
        "--port",
        "9",
        TURNPIKE_MAX_GATES="6",
        TURNPIKE_MAX_DEPTH="9",
    )
    for line in (
        'app = "my_app:app"  # --app',
        "max_rows = 8  # max_rows= in my_app:app",
        "max_depth = 9  # max_depth= in my_app:app",
        "queue = 7  # --queue",
        "port = 9  # --port",
        "max_gates = 6  # TURNPIKE_MAX_GATES",
        "dashboard = false  # default of turnpike.router",
        "docs = true  # --docs",
        "# api_keys is set and not shown  # api_keys= in my_app:app",
        "threads = 0  # default",
    ):
        assert line in printed.splitlines()
    assert "secret" not in printed


def test_an_option_is_in_force_where_the_code_sets_nothing(tmp_path: Path) -> None:
    with serving_app(tmp_path, GUARDED, "--max-rows", "1") as server:
        rows = {"inputs": [{**BODY["inputs"][0], "shape": [2, 1, 8, 8], "data": [1.0] * 128}]}
        refused = server.post(INFER, rows, headers={"token": "mine"})
        assert refused.status_code == 400
        assert "at most 1" in refused.json()["error"]


def test_a_variable_is_refused_as_an_option_is(tmp_path: Path) -> None:
    """If the code sets another value."""
    (tmp_path / "my_app.py").write_text(GUARDED.replace("turnpike.router(", "turnpike.router(max_rows=8"))
    command = [sys.executable, "-m", "turnpike", "serve", "--app", "my_app:app"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(TURNPIKE_MAX_ROWS="9"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "TURNPIKE_MAX_ROWS: expected no other value than the code of my_app:app sets" in ran.stderr
