"""`turnpike serve s3://...` with s3fs and a real S3 server, which fails in many ways."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.digit_requests import BUNDLED_MODEL, checked_requests
from tests.support.live_server import ROOT, Server, environment, serving
from tests.support.s3_server import BUCKET, S3Server, s3_server
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import with_manifest
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ADDRESS = f"s3://{BUCKET}/models"
# what a prediction may take while the store hangs; on a busy machine, the median is far below
MAX_PREDICTION_SECONDS = 2.0


@pytest.fixture
def store() -> Iterator[S3Server]:
    """A store with the bundled model, and two versions of a small one."""
    with s3_server() as store:
        store.put("models/digits-10/1/model.onnx", BUNDLED_MODEL.read_bytes())
        for version in (1, 2):
            store.put(f"models/net/{version}/model.onnx", network(version))
        yield store


def network(seed: int) -> bytes:
    return with_manifest(highway(seed=seed))


def options(tmp_path: Path, *more: object) -> list[object]:
    return [ADDRESS, "--model-cache", tmp_path / "cache", "--poll", 0.5, *more]


def states(server: Server, name: str = "net") -> dict[str, tuple[str, str]]:
    """State and reason of each version of a model."""
    entries = [entry for entry in server.post("/v2/repository/index").json() if entry["name"] == name]
    found = {entry["version"]: (entry["state"], entry["reason"]) for entry in entries}
    assert len(found) == len(entries)
    return found


def served_digests(server: Server) -> set[str]:
    """The SHA-256 digests of the files that are loaded, which the log has."""
    return {
        record.get("message", "").rpartition("SHA-256 ")[2]
        for record in server.logged()
        if "SHA-256" in record.get("message", "")
    }


def has_logged(server: Server, text: str) -> bool:
    return any(text in record.get("message", "") for record in server.logged())


def predict(server: Server) -> float:
    """Predict with the digits model, check the answer, and return the seconds."""
    (request,) = checked_requests(1)
    started = time.perf_counter()
    answer = server.post(request.path, request.body, headers=dict(request.headers))
    assert request.check(answer.content) is None
    return time.perf_counter() - started


def test_models_are_served_swapped_and_removed(store: S3Server, tmp_path: Path) -> None:
    """Only what is served is downloaded, and once. The supervisor stays small."""
    with serving(*options(tmp_path), **store.variables()) as server:
        predict(server)
        assert sorted(store.downloads) == ["models/digits-10/1/model.onnx", "models/net/2/model.onnx"]
        assert states(server) == {
            "1": ("UNAVAILABLE", "--versions latest serves version 2"),
            "2": ("READY", ""),
        }
        # a replaced file, and a new version
        store.put("models/net/2/model.onnx", network(7))
        replaced = hashlib.sha256(network(7)).hexdigest()
        wait_until(lambda: replaced in served_digests(server))
        store.put("models/net/3/model.onnx", network(3))
        wait_until(lambda: states(server).get("3") == ("READY", ""))
        # a removed model
        for version in (1, 2, 3):
            store.remove(f"models/net/{version}/model.onnx")
        wait_until(lambda: states(server) == {})
        predict(server)
        # polls without changes download nothing
        assert len(store.downloads) == 4
        store.targets.clear()
        wait_until(lambda: len(store.targets) > 2)
        (listing,) = set(store.targets)
        assert listing.startswith(f"/{BUCKET}?list-type=2&prefix=models%2F&delimiter=&")
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        assert "aiohttp" not in maps
        assert "numpy" not in maps


@pytest.mark.thorough
def test_a_restart_downloads_nothing_and_needs_no_store(store: S3Server, tmp_path: Path) -> None:
    """The store is killed while the second service runs: a third one starts without it."""
    with serving(*options(tmp_path), **store.variables()):
        pass
    downloads = len(store.downloads)
    with serving(*options(tmp_path), **store.variables()) as server:
        assert len(store.downloads) == downloads
        store.kill()
        wait_until(lambda: has_logged(server, "the models that are served stay"), 60)
        predict(server)
    with serving(*options(tmp_path), **store.variables()) as server:
        assert has_logged(server, "the models of the last listing are served from")
        predict(server)
        assert states(server)["2"] == ("READY", "")
    # without a cache there is nothing to serve
    command = [sys.executable, "-m", "turnpike", "serve", "--port", "0"]
    command += map(str, options(tmp_path / "other"))
    variables = environment(**store.variables())
    ended = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert f"expected a repository that can be listed, got '{ADDRESS}'" in ended.stderr


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("cut", "its file cannot be downloaded"),
        ("damage", "its graph or weights are not those of its manifest"),
    ],
)
def test_a_bad_body_is_refused(store: S3Server, tmp_path: Path, fault: str, reason: str) -> None:
    """What was served stays, and nothing of it is left in the cache. It is served once it is whole."""
    with serving(*options(tmp_path), **store.variables()) as server:
        files = set((tmp_path / "cache/files").iterdir())
        store.fault = fault  # type: ignore[assignment]
        store.put("models/net/3/model.onnx", network(3))
        wait_until(lambda: "3" in states(server) and states(server)["3"][1] == reason, 60)
        assert states(server)["2"] == ("READY", "")
        predict(server)
        store.fault = "none"
        # the name of a draft begins with a dot
        assert {path for path in (tmp_path / "cache/files").iterdir() if path.name[0] != "."} == files
        if fault == "damage":
            assert has_logged(server, "net/3: expected the graph and weights of its manifest, with digest")
            store.put("models/net/3/model.onnx", network(3))
        wait_until(lambda: states(server)["3"] == ("READY", ""), 60)


def test_a_hanging_store_delays_no_prediction(store: S3Server, tmp_path: Path) -> None:
    """Its process is killed after the time limit, and at the end of the service. The next scan works."""
    with serving(*options(tmp_path, "--store-seconds", 4), **store.variables()) as server:
        supervisor = psutil.Process(server.process.pid)
        memory = supervisor.memory_info().rss
        store.fault = "hang"
        store.targets.clear()
        wait_until(lambda: store.targets)
        slowest = 0.0
        while not has_logged(server, "expected a sign of progress"):
            slowest = max(slowest, predict(server))
        assert slowest < MAX_PREDICTION_SECONDS
        assert supervisor.memory_info().rss < memory + (8 << 20)
        store.fault = "none"
        store.ended.set()
        store.put("models/net/3/model.onnx", network(3))
        wait_until(lambda: states(server).get("3") == ("READY", ""), 60)
        store.ended.clear()
        store.fault = "hang"
        store.targets.clear()
        wait_until(lambda: store.targets)
        children = supervisor.children(recursive=True)
    wait_until(lambda: not any(child.is_running() for child in children), 10)
