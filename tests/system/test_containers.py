"""The images and docker-compose.yml on a real engine: from nothing to healthy, locked, broken, rolled."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.compose_project import BODY, PREDICT, ROOT, SHOT, Project, docker, need_engine, project
from tests.support.load_clients import LoadGenerator, LoadTally

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

CONNECTIONS = 8
BASE = "python:3.11-slim"
NO_CAPABILITY = "0000000000000000"


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """All images, as they are written now; layers that are there are not made again."""
    need_engine()
    with project("build") as one:
        one.compose("build", "export", "service")
        one.compose("--profile", "scale", "--profile", "loadtest", "build", "proxy", "loadtest")


@pytest.fixture(scope="module")
def stack(images: None) -> Iterator[Project]:
    """What `docker compose up` makes of nothing."""
    with project("plain") as one:
        one.compose("up", "--wait")
        yield one


@pytest.fixture(scope="module")
def scaled(images: None) -> Iterator[Project]:
    """Two replicas of the user's own models behind the proxy."""
    with project("scale", MODELS=str(ROOT / "service/default")) as one:
        one.compose("--profile", "scale", "up", "--wait", "proxy")
        wait_until(lambda: len(routes(one)) == 2)
        yield one


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.2)


def is_ready(one: Project) -> bool:
    try:
        return one.get("/v2/health/ready").status_code == 200
    except OSError:
        return False


def found(image: str, *names: str) -> list[str]:
    """Those of these packages that can be imported in an image."""
    script = f"import importlib.util as u; print(*(n for n in {names!r} if u.find_spec(n)))"
    return docker("run", "--rm", image, "python3", "-c", script).split()


def routes(one: Project) -> list[str]:
    return one.compose("--profile", "scale", "exec", "-T", "proxy", "proxy", "routes").split()


def under_load(url: str, happening: Callable[[], Awaitable[object]], *, fresh: bool = False) -> LoadTally:
    """What came of requests that were sent while something happened, and for a second after."""

    async def run() -> LoadTally:
        load = LoadGenerator(url, [SHOT], CONNECTIONS, fresh=fresh)
        sending = asyncio.create_task(load.run(300))
        await asyncio.sleep(0.5)
        assert load.tally.good
        try:
            await happening()
            await asyncio.sleep(1)
        finally:
            load.stopping = True
        return await sending

    return asyncio.run(run())


def test_a_fresh_clone_serves(stack: Project) -> None:
    """The model that was trained here answers the README's curl line, and shows its gates."""
    answer = stack.post(PREDICT, BODY)
    assert answer.status_code == 200, answer.text
    assert SHOT.check(answer.content) is None
    rows = json.loads(BODY)["instances"]
    tensor = {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": rows[0]}
    gates = stack.post("/v2/models/digits-10/gates?detail=summary", json.dumps({"inputs": [tensor]}).encode())
    assert gates.status_code == 200, gates.text
    assert len(gates.json()["gates"]) == 10


def test_the_dashboard_is_in_the_image(stack: Project) -> None:
    """The page, its files and its charts' library, of whose package the browser's half alone is left."""
    page = stack.get("/")
    assert page.status_code == 200
    (release,) = re.findall(r'<meta name="plotly" content="([0-9.]+)">', page.text)
    assert stack.get("/dashboard/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
    library = stack.get(f"/dashboard/plotly.js?v={release}")
    assert "immutable" in library.headers["cache-control"]
    assert "Plotly" in library.text
    files = stack.inside("service", "find /opt/turnpike/lib/python3*/site-packages/plotly -type f")
    assert [Path(file).name for file in files.splitlines()] == ["plotly.min.js"]


def test_a_second_up_trains_nothing(stack: Project) -> None:
    """What is in the volume is taken as it is, and the service goes on undisturbed."""
    before = stack.inside("service", "ls -li --full-time /models/digits-10/1"), stack.ids("service")
    stack.compose("up", "--wait")
    assert "there already: /models/digits-10/1/model.onnx" in stack.compose("logs", "export")
    assert (stack.inside("service", "ls -li --full-time /models/digits-10/1"), stack.ids("service")) == before


def test_the_service_is_locked_down(stack: Project) -> None:
    """From inside: nobody's user, no capability, nothing to write to, nothing to build or train with."""
    inside = stack.inside
    assert inside("service", "id -u; id -g").split() == ["10001", "10001"]
    status = dict(line.split(":\t") for line in inside("service", "cat /proc/self/status").splitlines())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITY}
    assert status["NoNewPrivs"] == "1"
    for folder in ("/", "/app", "/opt/turnpike", "/models", "/models/digits-10"):
        # as root it would be the file system that says no
        assert "cannot" in inside("service", f"touch {folder}/x 2>&1 || true"), folder
    assert inside("service", "touch /tmp/x && echo done") == "done"
    for mount in ("/", "/models"):
        (options,) = inside("service", f"awk '$2 == \"{mount}\" {{print $4}}' /proc/mounts").splitlines()
        assert options.split(",")[0] == "ro", mount
    absent = (
        "torch",
        "onnx",
        "onnxscript",
        "sklearn",
        "pip",
        "pytest",
        "models",
        "export",
        "loadtest",
        "tune",
    )
    assert found("turnpike-service", *absent) == []
    assert found("turnpike-service", "onnxruntime", "service") == ["onnxruntime", "service"]
    compilers = "for one in gcc cc g++ c++ clang ld as make rustc; do command -v $one; done; true"
    assert inside("service", compilers) == ""


def test_limits_reach_the_engine(stack: Project) -> None:
    """Memory, CPUs and processes are bounded, and a root that is read-only is not all that holds."""
    host = stack.inspect(stack.ids("service")[0])["HostConfig"]
    assert host["Memory"] == 1 << 30
    assert host["NanoCpus"] == 10**9
    assert host["PidsLimit"] == 256
    assert host["ReadonlyRootfs"]
    assert host["Init"]
    (export,) = stack.ids("export")
    assert stack.inspect(export)["HostConfig"]["NetworkMode"] == "none"


def test_the_images_are_small(stack: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The service's image is its base and libraries that run, and the proxy's little more than its base."""
    names = (BASE, "turnpike-service", "turnpike-export", "turnpike-loadtest", "turnpike-proxy")
    sizes = {name: int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in names}
    with capsys.disabled():
        for name, size in sizes.items():
            above = f", {(size - sizes[BASE]) / 1e6:.0f} MB above its base" if name != BASE else ""
            sys.stdout.write(f"\n{name}: {size / 1e6:.0f} MB{above}")
        sys.stdout.write("\n")
    assert sizes["turnpike-service"] - sizes[BASE] < 150e6
    assert sizes["turnpike-proxy"] - sizes[BASE] < 20e6


def test_a_killed_service_comes_back(stack: Project) -> None:
    """Its process killed under load, only requests that it had are lost, and it is there again by itself."""
    (container,) = stack.ids("service")
    starts = stack.inspect(container)["RestartCount"]

    def is_back() -> bool:
        return stack.inspect(container)["RestartCount"] > starts and is_ready(stack)

    async def kill() -> None:
        # the child of init, which is the supervisor; a kill by the engine would be a stop on purpose
        docker("exec", container, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        await asyncio.to_thread(wait_until, is_back)

    tally = under_load(stack.address("service"), kill)
    # a connection can lose what a worker had, and what it then sent to the port that was being taken down
    assert len(tally.lost) <= 2 * CONNECTIONS, tally.lost
    assert tally.wrong == []
    # not ready is said while it starts
    assert set(tally.statuses) <= {200, 503}
    assert stack.inspect(container)["RestartCount"] == starts + 1


def test_a_stop_loses_nothing(stack: Project) -> None:
    """SIGTERM under load: what was sent is answered, and it ends with 0 before it would be killed."""
    (container,) = stack.ids("service")
    begun = time.monotonic()
    tally = under_load(stack.address("service"), lambda: asyncio.to_thread(stack.compose, "stop", "service"))
    state = stack.inspect(container)["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert time.monotonic() - begun < 25
    assert (tally.lost, tally.wrong) == ([], [])
    assert set(tally.statuses) == {200}
    stack.compose("up", "--wait")


def test_a_killed_export_leaves_nothing_half(images: None) -> None:
    """Killed in the middle, it leaves no model; the next start makes it whole."""
    with project("killed") as one:
        one.compose("up", "--detach", "--no-deps", "export")
        wait_until(lambda: "test accuracy" in one.compose("logs", "export"), 60)
        docker("kill", *one.ids("export"))
        assert one.inspect(one.ids("export")[0])["State"]["ExitCode"] == 137
        # as it would be had the kill come while the file was written
        left = "mkdir -p /models/digits-10/1 && touch /models/digits-10/1/.model.0123abcd.onnx"
        one.compose("run", "--rm", "--no-deps", "-T", "export", "sh", "-c", left)
        one.compose("up", "--wait")
        assert "there already" not in one.compose("logs", "export")
        assert one.inside("service", "ls -A /models/digits-10/1") == "model.onnx"
        assert one.post(PREDICT, BODY).status_code == 200


def test_keys_arrive_as_secrets(images: None, tmp_path: Path) -> None:
    """With files of keys nothing is answered without one, and the admin key loads a model."""
    for name, text in (("api", "first-key\nsecond-key\n"), ("admin", "the-admin-key\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    files = {"API_KEYS_FILE": str(tmp_path / "api"), "ADMIN_KEY_FILE": str(tmp_path / "admin")}
    with project("keys", MODELS=str(ROOT / "service/default"), **files) as one:
        one.compose("up", "--wait")
        assert one.post(PREDICT, BODY).status_code == 401
        assert one.post(PREDICT, BODY, headers={"X-Api-Key": "second-key"}).status_code == 200
        load = "/v2/repository/models/digits-10/load"
        assert one.post(load, b"{}", headers={"X-Api-Key": "first-key"}).status_code == 403
        assert one.post(load, b"{}", headers={"X-Api-Key": "the-admin-key"}).status_code == 200
        said = one.compose("logs") + json.dumps(one.inspect(one.ids("service")[0]))
        assert not [key for key in ("first-key", "second-key", "the-admin-key") if key in said]


def test_an_empty_file_of_keys_opens_nothing(images: None, tmp_path: Path) -> None:
    """A secret that failed to arrive stops the service rather than its locks."""
    (tmp_path / "api").write_text("")
    with project("empty", MODELS=str(ROOT / "service/default"), API_KEYS_FILE=str(tmp_path / "api")) as one:
        assert one.run("docker", "compose", "up", "--wait").returncode != 0
        assert "expected at least one key" in one.compose("logs", "service")


def test_a_folder_of_models_is_served_and_nothing_is_trained(images: None, tmp_path: Path) -> None:
    """MODELS names it: the one-shot looks into it from the small image, and the service reads it."""
    shutil.copytree(ROOT / "service/default/digits-10", tmp_path / "my-digits")
    tmp_path.chmod(0o755)
    with project("own", MODELS=str(tmp_path)) as one:
        one.compose("up", "--wait")
        assert [model["name"] for model in one.post("/v2/repository/index", b"{}").json()] == ["my-digits"]
        assert one.inspect(one.ids("export")[0])["Config"]["Image"] == "turnpike-export-skipped"
        assert "/my-digits/1/model.onnx" in one.compose("logs", "export")


def test_a_folder_without_models_is_said(images: None, tmp_path: Path) -> None:
    """A mistyped folder ends the start with the reason, and trains nothing into it."""
    with project("none", MODELS=str(tmp_path / "mistyped")) as one:
        assert one.run("docker", "compose", "up", "--wait").returncode != 0
        assert "MODELS: expected a folder with NAME/VERSION/model.onnx" in one.compose("logs", "export")
        assert not list((tmp_path / "mistyped").iterdir())


@pytest.mark.parametrize("fresh", [False, True], ids=["kept connections", "a connection each"])
def test_a_roll_loses_nothing(scaled: Project, fresh: bool) -> None:
    """All are replaced under load, each request gets its right answer, and `up` finds nothing out of date."""
    before = scaled.ids("replica")

    async def roll() -> None:
        ran = await asyncio.to_thread(scaled.run, "deploy/roll")
        assert ran.returncode == 0, ran.stdout + ran.stderr

    tally = under_load(f"http://127.0.0.1:{scaled.scale_port}", roll, fresh=fresh)
    assert (tally.lost, tally.wrong, tally.refused) == ([], [], 0)
    assert set(tally.statuses) == {200}
    after = scaled.ids("replica")
    assert len(after) == len(before) == 2
    assert not set(before) & set(after)
    scaled.compose("--profile", "scale", "up", "--wait", "proxy")
    assert scaled.ids("replica") == after


def test_a_roll_to_what_never_gets_ready_is_taken_back(scaled: Project) -> None:
    """The newcomer is removed, and the old replicas answer all the while."""
    before = scaled.ids("replica")

    async def roll() -> None:
        ran = await asyncio.to_thread(scaled.run, "deploy/roll", ROLL_SECONDS="3", TURNPIKE_QUEUE="none")
        assert ran.returncode == 1
        assert "TURNPIKE_QUEUE: expected a whole number" in ran.stderr
        assert "was not ready within 3 seconds; the old ones stay" in ran.stderr

    tally = under_load(f"http://127.0.0.1:{scaled.scale_port}", roll)
    assert (tally.lost, set(tally.statuses)) == ([], {200})
    assert scaled.ids("replica") == before


def test_a_roll_to_what_cannot_start_is_taken_back(scaled: Project, tmp_path: Path) -> None:
    """A replica that the engine makes and cannot start is not left behind."""
    before = scaled.ids("replica")
    (tmp_path / "file").touch()
    ran = scaled.run("deploy/roll", MODELS=str(tmp_path / "file"))
    assert ran.returncode == 1
    assert "the new replica could not be started; the old ones stay" in ran.stderr
    assert scaled.ids("replica") == before


def test_the_proxy_says_in_json_that_nobody_is_ready(scaled: Project) -> None:
    """Without replicas a request is 503 with Retry-After; they are found again when they are there."""
    one = scaled
    front = Project(one.name, port=one.scale_port)
    one.compose("--profile", "scale", "stop", "replica")
    wait_until(lambda: front.post(PREDICT, BODY).status_code == 503)
    answer = front.post(PREDICT, BODY)
    assert answer.json() == {"error": "no replica is ready"}
    assert answer.headers["retry-after"] == "1"
    one.compose("--profile", "scale", "up", "--wait", "proxy")
    wait_until(lambda: front.post(PREDICT, BODY).status_code == 200)


def test_the_load_generator_loads_the_service(stack: Project) -> None:
    """From its own image, over the project's network, for some seconds, with every answer checked."""
    words = ["--users", "8", "--duration", "4s", "--warmup", "1s", "--wire", "mixed", "--slo", "errors<0.1%"]
    said = stack.compose(
        "--profile",
        "loadtest",
        "run",
        "--rm",
        "--no-deps",
        "-T",
        "--entrypoint",
        "turnpike",
        "loadtest",
        "loadtest",
        "http://service:8000",
        *words,
    )
    assert "digits-10" in said


def test_locusts_page_loads_the_service(stack: Project) -> None:
    """The profile's page starts a load, its workers send it, and no answer is bad."""
    stack.compose("--profile", "loadtest", "up", "--wait")
    page = "http://" + stack.compose("--profile", "loadtest", "port", "loadtest", "8089").strip()
    form = {"user_count": "4", "spawn_rate": "4", "host": "http://service:8000"}
    wait_until(lambda: requests.get(page + "/stats/requests", timeout=30).json()["worker_count"] == 1)
    assert requests.post(page + "/swarm", data=form, timeout=30).json()["success"]

    def told() -> dict[str, Any]:
        (*_, total) = requests.get(page + "/stats/requests", timeout=30).json()["stats"]
        return dict(total)

    wait_until(lambda: told()["num_requests"] > 100)
    assert requests.post(page + "/stop", timeout=30).json()["success"]
    assert told()["num_failures"] == 0
    stack.compose("--profile", "loadtest", "stop", "loadtest", "loadtest-worker")


@pytest.mark.parametrize("image", ["turnpike-proxy", "turnpike-loadtest", "turnpike-export"])
def test_the_others_run_as_nobody(images: None, image: str) -> None:
    """No image starts as root, and only one holds what trains and only two what serves."""
    assert docker("run", "--rm", image, "id", "-u") == "10001"
    trains = ["torch", "onnx", "onnxruntime", "service", "models"]
    assert found(image, *trains) == (trains if image == "turnpike-export" else [])
