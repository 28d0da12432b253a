"""The images and docker-compose.yml on a real engine: start, security, faults, keys, rolling updates."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests

from tests.support.compose_project import (
    BODY,
    PREDICT,
    README_REQUEST,
    ROOT,
    Project,
    docker,
    need_engine,
    temporary_project,
)
from tests.support.grpc_load import digit_request, grpc_load, infer_method
from tests.support.load_clients import LoadGenerator, LoadTally
from tests.support.tls_certificate import certificate
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

CONNECTIONS = 8
BASE = "python:3.11-slim"
NO_CAPABILITY = "0000000000000000"


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """All images, built from the current files; cached layers are reused."""
    need_engine()
    with temporary_project("build") as project:
        project.compose("build", "export", "service")
        project.compose(
            "--profile", "scale", "--profile", "loadtest", "build", "replica", "proxy", "loadtest"
        )


@pytest.fixture(scope="module")
def stack(images: None) -> Iterator[Project]:
    """The project that `docker compose up` starts from an empty volume."""
    with temporary_project("plain") as project:
        project.compose("up", "--wait")
        yield project


@pytest.fixture(scope="module")
def scaled(images: None) -> Iterator[Project]:
    """Two replicas behind the proxy, with a folder of models."""
    with temporary_project("scale", MODELS=str(ROOT / "service/default")) as project:
        project.compose("--profile", "scale", "up", "--wait", "proxy")
        wait_until(lambda: len(routes(project)) == 2)
        yield project


@pytest.fixture(scope="module")
def build_changed(
    scaled: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], None]]:
    """Builds the image of a service from a copy of the repository, with other code each time."""
    folder = copy_build_context(tmp_path_factory.mktemp("changed"))

    def build(service: str) -> None:
        with (folder / "common/distribution.py").open("a", encoding="utf-8") as file:
            file.write(f"# changed at {time.time()}\n")
        scaled.compose("--file", str(folder / "docker-compose.yml"), "--profile", "scale", "build", service)

    yield build
    scaled.compose("--profile", "scale", "build", "service", "replica")


def copy_build_context(folder: Path) -> Path:
    """Copy the files that images are built from, with the links to the packages as they are."""
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    for name in ("docker-compose.yml", "Dockerfile", ".dockerignore", *allowed):
        copy = folder / name
        copy.parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    return folder


def is_ready(project: Project) -> bool:
    try:
        return project.get("/v2/health/ready").status_code == 200
    except OSError:
        return False


def importable(image: str, *names: str) -> list[str]:
    """The packages that can be imported in an image."""
    script = f"import importlib.util as u; print(*(n for n in {names!r} if u.find_spec(n)))"
    return docker("run", "--rm", image, "python3", "-c", script).split()


def routes(project: Project) -> list[str]:
    return project.compose("--profile", "scale", "exec", "-T", "proxy", "proxy", "routes").split()


def under_load(url: str, action: Callable[[], Awaitable[object]], *, fresh: bool = False) -> LoadTally:
    """The results of requests that are sent during an action, and for a second after it."""

    async def run() -> LoadTally:
        load = LoadGenerator(url, [README_REQUEST], CONNECTIONS, fresh=fresh)
        sending = asyncio.create_task(load.run(300))
        await asyncio.sleep(0.5)
        assert load.tally.good
        try:
            await action()
            await asyncio.sleep(1)
        finally:
            load.stopping = True
        return await sending

    return asyncio.run(run())


def test_a_fresh_clone_answers_requests(stack: Project) -> None:
    """The model that was trained in the container answers the README's curl line, and shows its gates."""
    answer = stack.post(PREDICT, BODY)
    assert answer.status_code == 200, answer.text
    assert README_REQUEST.check(answer.content) is None
    rows = json.loads(BODY)["instances"]
    tensor = {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": rows[0]}
    gates = stack.post("/v2/models/digits-10/gates?detail=summary", json.dumps({"inputs": [tensor]}).encode())
    assert gates.status_code == 200, gates.text
    assert len(gates.json()["gates"]) == 10


def test_grpc_is_served_beside_http(stack: Project) -> None:
    """On a port of its own, with the bits that HTTP returns."""
    with grpc.insecure_channel(f"127.0.0.1:{stack.grpc_port}") as channel:
        answer = infer_method(channel)(digit_request(), timeout=30)
    body = {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]}
    over_http = stack.post("/v2/models/digits-10/infer", json.dumps(body).encode()).json()
    logits = np.array(over_http["outputs"][0]["data"], np.float32)
    assert answer.raw_output_contents == [logits.tobytes()]


def test_the_dashboard_is_in_the_image(stack: Project) -> None:
    """The page, its files and its charts' library; of plotly only the JavaScript is left."""
    page = stack.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 200
    (release,) = re.findall(r'<meta name="plotly" content="([0-9.]+)">', page.text)
    assert stack.get("/dashboard/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
    library = stack.get(f"/dashboard/plotly.js?v={release}")
    assert "immutable" in library.headers["cache-control"]
    assert "Plotly" in library.text
    files = stack.inside("service", "find /opt/turnpike/lib/python3*/site-packages/plotly -type f")
    assert [Path(file).name for file in files.splitlines()] == ["plotly.min.js"]


def test_a_second_up_keeps_the_trained_model(stack: Project) -> None:
    """The service keeps running."""
    before = stack.inside("service", "ls -li --full-time /models/digits-10/1"), stack.ids("service")
    stack.compose("up", "--wait")
    assert "there already: /models/digits-10/1/model.onnx" in stack.compose("logs", "export")
    assert (stack.inside("service", "ls -li --full-time /models/digits-10/1"), stack.ids("service")) == before


def test_the_service_is_hardened(stack: Project) -> None:
    """No root user, no capability, nothing to write to, no compiler, and no tools of the build."""
    inside = stack.inside
    assert inside("service", "id -u; id -g").split() == ["10001", "10001"]
    status = dict(line.split(":\t") for line in inside("service", "cat /proc/self/status").splitlines())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITY}
    assert status["NoNewPrivs"] == "1"
    for folder in ("/", "/work", "/opt/turnpike", "/models", "/models/digits-10"):
        # for root, too, because the file system is read-only
        assert "cannot" in inside("service", f"touch {folder}/x 2>&1 || true"), folder
    assert inside("service", "touch /tmp/x && echo done") == "done"
    for mount in ("/", "/models"):
        (options,) = inside("service", f"awk '$2 == \"{mount}\" {{print $4}}' /proc/mounts").splitlines()
        assert options.split(",")[0] == "ro", mount
    assert importable("turnpike-service", "pip", "setuptools", "pytest") == []
    compilers = "for name in gcc cc g++ c++ clang ld as make rustc; do command -v $name; done; true"
    assert inside("service", compilers) == ""


def test_the_image_holds_the_wheel_and_the_libraries_of_the_service(images: None) -> None:
    """The whole wheel, nothing of the build, and no module in the current folder."""
    absent = ("torch", "onnx", "onnxscript", "sklearn", "locust", "aiohttp", "service", "models")
    assert importable("turnpike-service", "onnxruntime", "numpy", *absent) == ["onnxruntime", "numpy"]
    script = """if True:
        import importlib.metadata, os, pathlib, turnpike.service
        distribution = importlib.metadata.distribution("turnpike-onnx")
        installed = {file.locate().resolve() for file in distribution.files}
        package = pathlib.Path(turnpike.__file__).parent
        files = {path for path in package.rglob("*") if path.is_file()}
        print(turnpike.service.__file__)
        print(os.listdir(), [str(path) for path in files - installed])
        compiled = {path.name.partition(".")[0] for path in files if path.suffix == ".pyc"}
        print([path.name for path in files if path.suffix == ".py" and path.stem not in compiled])
    """
    output = docker("run", "--rm", "turnpike-service", "python3", "-c", script)
    file, others, not_compiled = output.splitlines()
    assert re.fullmatch(r"/opt/turnpike/lib/python3\.\d+/site-packages/turnpike/service/__init__\.py", file)
    assert others == "[] []"
    assert not_compiled == "[]"


def test_a_command_of_another_image_names_its_extra(images: None) -> None:
    """The code of every command is in the image; its libraries are not."""
    command = ("docker", "run", "--rm", "turnpike-service", "turnpike", "train", "digits-10")
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert result.stderr.startswith("error: turnpike train needs torch, which is not installed: pip install")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("lost", ["as a text", "missing"])
def test_a_build_without_a_link_fails(images: None, tmp_path: Path, lost: str) -> None:
    """Git writes links as texts if it is set to; an image without a package would fail only later."""
    link = copy_build_context(tmp_path) / "src/turnpike/score"
    target = link.readlink()
    link.unlink()
    if lost == "as a text":
        link.write_text(str(target))
    command = ("docker", "build", "--progress=plain", "--target=code", str(tmp_path))
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode != 0
    assert "expected src/turnpike/score/__init__.py, found none" in result.stderr


def test_onnxruntime_leaves_no_reports(stack: Project) -> None:
    """After a run, /tmp, which is its home, has no id of the device and no session of reports."""
    assert stack.post(PREDICT, BODY).status_code == 200
    assert "ORT_DISABLE_TELEMETRY=1" in stack.inside("service", "env").splitlines()
    assert stack.inside("service", "find /tmp -name '*.ses' -o -name Microsoft") == ""
    (export,) = stack.ids("export")
    assert "ORT_DISABLE_TELEMETRY=1" in stack.inspect(export)["Config"]["Env"]


def test_limits_reach_the_engine(stack: Project) -> None:
    """The engine has the limits on memory, CPUs and processes, and the read-only root."""
    host = stack.inspect(stack.ids("service")[0])["HostConfig"]
    assert host["Memory"] == 1 << 30
    assert host["NanoCpus"] == 10**9
    assert host["PidsLimit"] == 256
    assert host["ReadonlyRootfs"]
    assert host["Init"]
    (export,) = stack.ids("export")
    assert stack.inspect(export)["HostConfig"]["NetworkMode"] == "none"


def test_the_images_are_small(stack: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The images of the service and the proxy add little to their base."""
    names = (BASE, "turnpike-service", "turnpike-export", "turnpike-loadtest", "turnpike-proxy")
    sizes = {name: int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in names}
    with capsys.disabled():
        for name, size in sizes.items():
            above = f", {(size - sizes[BASE]) / 1e6:.0f} MB above its base" if name != BASE else ""
            sys.stdout.write(f"\n{name}: {size / 1e6:.0f} MB{above}")
        sys.stdout.write("\n")
    assert sizes["turnpike-service"] - sizes[BASE] < 150e6
    assert sizes["turnpike-proxy"] - sizes[BASE] < 20e6


def test_a_killed_service_restarts(stack: Project) -> None:
    """If its process is killed under load, only its current requests are lost, and it restarts by itself."""
    (container,) = stack.ids("service")
    starts = stack.inspect(container)["RestartCount"]

    def is_back() -> bool:
        return stack.inspect(container)["RestartCount"] > starts and is_ready(stack)

    async def kill() -> None:
        # kill the supervisor, which is init's child; the engine takes its own kill for a stop on purpose
        docker("exec", container, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        await asyncio.to_thread(wait_until, is_back)

    tally = under_load(stack.address("service"), kill)
    # a connection can lose the request that a worker had, and one sent to the port while it closed
    assert len(tally.lost) <= 2 * CONNECTIONS, tally.lost
    assert tally.wrong == []
    # 503 while it starts
    assert set(tally.statuses) <= {200, 503}
    assert stack.inspect(container)["RestartCount"] == starts + 1


def test_a_stop_loses_nothing(stack: Project) -> None:
    """SIGTERM under load: all requests are answered, and it exits with 0 before it would be killed."""
    (container,) = stack.ids("service")
    started = time.monotonic()
    tally = under_load(stack.address("service"), lambda: asyncio.to_thread(stack.compose, "stop", "service"))
    state = stack.inspect(container)["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert time.monotonic() - started < 25
    assert (tally.lost, tally.wrong) == ([], [])
    assert set(tally.statuses) == {200}
    stack.compose("up", "--wait")


@pytest.mark.thorough
def test_a_killed_export_leaves_no_model(images: None) -> None:
    """The next start writes a complete model."""
    with temporary_project("killed") as project:
        project.compose("up", "--detach", "--no-deps", "export")
        wait_until(lambda: "test accuracy" in project.compose("logs", "export"), 60)
        docker("kill", *project.ids("export"))
        assert project.inspect(project.ids("export")[0])["State"]["ExitCode"] == 137
        # the file that a kill during writing leaves behind
        leave_part = "mkdir -p /models/digits-10/1 && touch /models/digits-10/1/.model.0123abcd.onnx"
        project.compose("run", "--rm", "--no-deps", "-T", "export", "sh", "-c", leave_part)
        project.compose("up", "--wait")
        assert "there already" not in project.compose("logs", "export")
        assert project.inside("service", "ls -A /models/digits-10/1") == "model.onnx"
        assert project.post(PREDICT, BODY).status_code == 200


def test_keys_are_read_from_secrets(images: None, tmp_path: Path) -> None:
    """With files of keys, requests need a key, and the admin key loads a model."""
    for name, text in (("api", "first-key\nsecond-key\n"), ("admin", "the-admin-key\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    files = {"API_KEYS_FILE": str(tmp_path / "api"), "ADMIN_KEY_FILE": str(tmp_path / "admin")}
    with temporary_project("keys", MODELS=str(ROOT / "service/default"), **files) as project:
        project.compose("up", "--wait")
        assert project.post(PREDICT, BODY).status_code == 401
        assert project.post(PREDICT, BODY, headers={"X-Api-Key": "second-key"}).status_code == 200
        load = "/v2/repository/models/digits-10/load"
        assert project.post(load, b"{}", headers={"X-Api-Key": "first-key"}).status_code == 403
        assert project.post(load, b"{}", headers={"X-Api-Key": "the-admin-key"}).status_code == 200
        visible = project.compose("logs") + json.dumps(project.inspect(project.ids("service")[0]))
        assert not [key for key in ("first-key", "second-key", "the-admin-key") if key in visible]


def test_an_empty_key_file_stops_the_start(images: None, tmp_path: Path) -> None:
    """If a secret is missing, the service does not start, instead of starting without keys."""
    (tmp_path / "api").write_text("")
    with temporary_project(
        "empty", MODELS=str(ROOT / "service/default"), API_KEYS_FILE=str(tmp_path / "api")
    ) as project:
        assert project.run("docker", "compose", "up", "--wait").returncode != 0
        assert "expected at least one key" in project.compose("logs", "service")


def test_a_folder_of_models_is_served_without_training(images: None, tmp_path: Path) -> None:
    """With MODELS, the one-shot uses the small image and only checks the folder; the service reads it."""
    shutil.copytree(ROOT / "service/default/digits-10", tmp_path / "my-digits")
    tmp_path.chmod(0o755)
    with temporary_project("own", MODELS=str(tmp_path)) as project:
        project.compose("up", "--wait")
        assert [model["name"] for model in project.post("/v2/repository/index", b"{}").json()] == [
            "my-digits"
        ]
        assert project.inspect(project.ids("export")[0])["Config"]["Image"] == "turnpike-export-skipped"
        assert "/my-digits/1/model.onnx" in project.compose("logs", "export")


def test_a_folder_without_models_stops_the_start(images: None, tmp_path: Path) -> None:
    """The reason is in the log, and nothing is written into the folder."""
    with temporary_project("none", MODELS=str(tmp_path)) as project:
        assert project.run("docker", "compose", "up", "--wait").returncode != 0
        assert "MODELS: expected a folder with NAME/VERSION/model.onnx" in project.compose("logs", "export")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [(), ("--no-deps", "service")], ids=["all", "only the service"])
def test_a_mistyped_folder_stops_the_start(images: None, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Docker would create it, as root. The message names it."""
    folder = tmp_path / "mistyped"
    with temporary_project("mistyped", MODELS=str(folder)) as project:
        result = project.run("docker", "compose", "up", "--wait", *options)
        assert result.returncode != 0
        assert f"bind source path does not exist: {folder}" in result.stderr
        assert not folder.exists()


def test_a_service_without_a_model_is_unhealthy(images: None, tmp_path: Path) -> None:
    """`up --wait` fails, and the log of the health check says why. A good file makes it healthy."""
    file = tmp_path / "digits-10/1/model.onnx"
    file.parent.mkdir(parents=True)
    good = (ROOT / "service/default/digits-10/1/model.onnx").read_bytes()
    file.write_bytes(good[:5000])
    tmp_path.chmod(0o755)
    with temporary_project("damaged", MODELS=str(tmp_path), READY_SECONDS="1") as project:
        result = project.run("docker", "compose", "up", "--wait")
        assert result.returncode != 0
        assert "is unhealthy" in result.stderr
        (container,) = project.ids("service")
        health = project.inspect(container)["State"]["Health"]
        assert health["Status"] == "unhealthy"
        assert '"reason":"' in health["Log"][-1]["Output"]
        draft = file.with_name(".model.onnx")
        draft.write_bytes(good)
        draft.rename(file)
        wait_until(lambda: project.inspect(container)["State"]["Health"]["Status"] == "healthy", 60)
        assert project.inspect(container)["RestartCount"] == 0


def test_a_certificate_turns_on_https(images: None, tmp_path: Path) -> None:
    """The service, its health check and the load test speak HTTPS. Replicas are behind a proxy that does."""
    cert, key = certificate(tmp_path)
    key.chmod(0o644)
    files = {"TLS_CERT": str(cert), "TLS_KEY": str(key)}
    credentials = grpc.ssl_channel_credentials(cert.read_bytes())
    with temporary_project("tls", MODELS=str(ROOT / "service/default"), **files) as project:
        project.compose("--profile", "scale", "up", "--wait", "service", "proxy")
        wait_until(lambda: len(routes(project)) == 2)
        for port in (project.port, project.scale_port):
            url = f"https://127.0.0.1:{port}{PREDICT}"
            answer = requests.post(url, data=BODY, verify=str(cert), timeout=30)
            assert README_REQUEST.check(answer.content) is None
            with pytest.raises(OSError, match="Connection|SSL|aborted|Bad Request|400"):
                requests.get(f"http://127.0.0.1:{port}/v2/health/live", timeout=30).raise_for_status()
        for port in (project.grpc_port, project.scale_grpc_port):
            with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                assert infer_method(channel)(digit_request(), timeout=30).raw_output_contents
        project.compose("--profile", "loadtest", "up", "--detach", "loadtest", "loadtest-worker")
        # the key is in no log and no label
        visible = project.compose("logs") + json.dumps(project.inspect(project.ids("service")[0]))
        assert key.read_text().splitlines()[1] not in visible
        page = "http://" + project.compose("--profile", "loadtest", "port", "loadtest", "8089").strip()
        assert load_from_page(page, "https://service:8000") == 0


@pytest.mark.parametrize(
    "fresh",
    [
        pytest.param(False, id="kept connections"),
        pytest.param(True, id="a connection each", marks=pytest.mark.thorough),
    ],
)
def test_a_rolling_update_loses_nothing(
    scaled: Project, build_changed: Callable[[str], None], fresh: bool
) -> None:
    """All replicas get a new image under load of HTTP and gRPC, and `up` finds nothing out of date."""
    before = scaled.ids("replica")
    build_changed("replica")

    async def roll() -> None:
        result = await asyncio.to_thread(scaled.run, "deploy/roll")
        assert result.returncode == 0, result.stdout + result.stderr

    # the proxy sends each call of a connection of gRPC to a replica that takes new ones
    with grpc_load(f"127.0.0.1:{scaled.scale_grpc_port}", threads=2) as calls:
        tally = under_load(f"http://127.0.0.1:{scaled.scale_port}", roll, fresh=fresh)
    assert (calls.errors, calls.wrong) == ([], 0)
    assert (tally.lost, tally.wrong, tally.refused) == ([], [], 0)
    assert set(tally.statuses) == {200}
    after = scaled.ids("replica")
    assert len(after) == len(before) == 2
    assert not set(before) & set(after)
    image = docker("image", "inspect", "--format", "{{.Id}}", "turnpike-replica")
    assert {scaled.inspect(container)["Image"] for container in after} == {image}
    scaled.compose("--profile", "scale", "up", "--wait", "proxy")
    assert scaled.ids("replica") == after


async def send_slowly(port: int, seconds: float) -> bytes:
    """The first line of the answer to a request whose body takes this time to arrive."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = README_REQUEST.to_bytes("x")
    writer.write(data[:-1])
    await asyncio.sleep(seconds)
    writer.write(data[-1:])
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.thorough
def test_building_and_scaling_lose_nothing(scaled: Project, build_changed: Callable[[str], None]) -> None:
    """Other numbers of replicas, and new images, under load: running replicas stay."""
    first = set(scaled.ids("replica"))
    slow_answers: list[bytes] = []

    def scale(count: int, *options: str) -> set[str]:
        scaled.compose("--profile", "scale", "up", *options, "--wait", "proxy", REPLICAS=str(count))
        wait_until(lambda: len(routes(scaled)) == count)
        return set(scaled.ids("replica"))

    def build_and_scale() -> None:
        # a new image of the service does not concern the replicas
        build_changed("service")
        assert scale(3) > first
        assert scale(2) == first
        # a new image of the replicas is only used by those that are added
        build_changed("replica")
        more = scale(3, "--no-recreate")
        assert more > first
        assert len({scaled.inspect(container)["Image"] for container in more}) == 2

    async def action() -> None:
        await asyncio.to_thread(build_and_scale)
        # every replica has some of these requests, also the one that has to stop
        slow = [asyncio.create_task(send_slowly(scaled.scale_port, 8)) for _ in range(6)]
        await asyncio.sleep(0.5)
        assert len(await asyncio.to_thread(scale, 2, "--no-recreate")) == 2
        slow_answers.extend(await asyncio.gather(*slow))

    tally = under_load(f"http://127.0.0.1:{scaled.scale_port}", action)
    assert (tally.lost, tally.wrong, tally.refused) == ([], [], 0)
    assert set(tally.statuses) == {200}
    assert slow_answers == [b"HTTP/1.1 200 OK\r\n"] * 6


def test_a_rolling_update_that_is_never_ready_is_rolled_back(scaled: Project) -> None:
    """The new replica is removed, and the old ones answer all the time."""
    before = scaled.ids("replica")

    async def roll() -> None:
        result = await asyncio.to_thread(scaled.run, "deploy/roll", ROLL_SECONDS="3", TURNPIKE_QUEUE="none")
        assert result.returncode == 1
        assert "TURNPIKE_QUEUE: expected a whole number" in result.stderr
        assert "was not ready within 3 seconds; the old ones stay" in result.stderr

    tally = under_load(f"http://127.0.0.1:{scaled.scale_port}", roll)
    assert (tally.lost, set(tally.statuses)) == ([], {200})
    assert scaled.ids("replica") == before


def test_a_rolling_update_that_cannot_start_is_rolled_back(scaled: Project, tmp_path: Path) -> None:
    """A replica that the engine creates but cannot start is removed."""
    before = scaled.ids("replica")
    (tmp_path / "file").touch()
    result = scaled.run("deploy/roll", MODELS=str(tmp_path / "file"))
    assert result.returncode == 1
    assert "the new replica could not be started; the old ones stay" in result.stderr
    assert scaled.ids("replica") == before


@pytest.mark.thorough
def test_the_proxy_sends_json_if_no_replica_is_ready(scaled: Project) -> None:
    """Without replicas a request gets 503 with Retry-After; replicas are found again once they run."""
    front = Project(scaled.name, port=scaled.scale_port)
    scaled.compose("--profile", "scale", "stop", "replica")
    wait_until(lambda: front.post(PREDICT, BODY).status_code == 503)
    answer = front.post(PREDICT, BODY)
    assert answer.json() == {"error": "no replica is ready"}
    assert answer.headers["retry-after"] == "1"
    scaled.compose("--profile", "scale", "up", "--wait", "proxy")
    wait_until(lambda: front.post(PREDICT, BODY).status_code == 200)


def test_the_load_generator_loads_the_service(stack: Project) -> None:
    """It runs in its own image, over the project's network, and checks every answer."""
    options = [
        "--users",
        "8",
        "--duration",
        "4s",
        "--warmup",
        "1s",
        "--wire",
        "mixed",
        "--slo",
        "errors<0.1%",
    ]
    output = stack.compose(
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
        *options,
    )
    assert "digits-10" in output


def load_from_page(page: str, host: str) -> int:
    """Start a load from locust's page, and stop it after some requests. Returns how many failed."""

    def figures() -> dict[str, Any]:
        return dict(requests.get(page + "/stats/requests", timeout=30).json())

    wait_until(lambda: figures()["worker_count"] == 1, allowed=OSError)
    form = {"user_count": "4", "spawn_rate": "4", "host": host}
    assert requests.post(page + "/swarm", data=form, timeout=30).json()["success"]
    wait_until(lambda: figures()["stats"][-1]["num_requests"] > 100)
    assert requests.post(page + "/stop", timeout=30).json()["success"]
    return int(figures()["stats"][-1]["num_failures"])


def test_the_page_of_locust_loads_the_service(stack: Project) -> None:
    """Locust's page starts a load, the workers send it, and no answer is bad."""
    stack.compose("--profile", "loadtest", "up", "--wait")
    page = "http://" + stack.compose("--profile", "loadtest", "port", "loadtest", "8089").strip()
    assert load_from_page(page, "http://service:8000") == 0
    stack.compose("--profile", "loadtest", "stop", "loadtest", "loadtest-worker")


@pytest.mark.parametrize("image", ["turnpike-proxy", "turnpike-loadtest", "turnpike-export"])
def test_no_image_runs_as_root(images: None, image: str) -> None:
    """Only the export has training libraries, and the proxy has no code of ours."""
    assert docker("run", "--rm", image, "id", "-u") == "10001"
    libraries = ["torch", "onnx", "onnxruntime"]
    assert importable(image, *libraries) == (libraries if image == "turnpike-export" else [])
    assert importable(image, "turnpike") == ([] if image == "turnpike-proxy" else ["turnpike"])
