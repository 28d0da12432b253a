"""Workers of a real server that share the prepared weights of a wide model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_server import Server, serving, worker_processes
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.waiting import wait_until

WORKERS = 3
ROWS = 5
GATED = highway(units=800, layers=2)
REQUEST = {
    "inputs": [
        {"name": "x", "shape": [ROWS, 4], "datatype": "FP32", "data": [0.1 * n for n in range(4 * ROWS)]}
    ],
    "outputs": [{"name": name} for name in ("logits", "layer00.transform_gate", "layer01.output")],
}
PROBLEM = "workers do not share weights"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    put_model(tmp_path / "models", "wide", data=with_manifest(GATED))
    return tmp_path / "models"


def mapped(server: Server) -> list[set[str]]:
    """For each worker, the entries of the cache that it has mapped."""
    maps = (Path(f"/proc/{worker.pid}/maps").read_text() for worker in worker_processes(server))
    return [set(re.findall(r"/\S*/entries/\S+", text)) for text in maps]


def answers(server: Server) -> set[bytes]:
    """The answers over enough connections to reach every worker."""
    return {server.post("/v2/models/wide/infer", REQUEST).content for _ in range(8 * WORKERS)}


def messages(server: Server, part: str) -> list[Any]:
    texts = [record.get("message", "") for record in server.logged()]
    return [text for text in texts if part in text]


def options(repository: Path, *more: object) -> tuple[object, ...]:
    return ("--models", repository, "--workers", WORKERS, "--threads", 1, *more)


def test_workers_map_the_same_weights(tmp_path: Path, repository: Path) -> None:
    """One prepares them, also for a later start. They give the answers of a service without a cache."""
    with serving(*options(repository), "--weights-cache", 0) as server:
        expected = answers(server)
        assert mapped(server) == [set()] * WORKERS
    assert len(expected) == 1
    for prepared in (1, 0):
        with serving(*options(repository), TURNPIKE_CACHE=str(tmp_path / "cache")) as server:
            assert answers(server) == expected
            assert len(messages(server, "prepared its weights")) == prepared
            assert len(messages(server, "weights are shared")) == WORKERS
            files = mapped(server)
            assert len(files) == WORKERS
            assert len(set.union(*files)) == 1
            assert not messages(server, PROBLEM)


def test_the_weights_go_with_their_model(tmp_path: Path, repository: Path) -> None:
    entries = tmp_path / "cache" / "weights" / "entries"
    with serving(*options(repository, "--poll", 0.1), TURNPIKE_CACHE=str(tmp_path / "cache")) as server:
        assert len(list(entries.iterdir())) == 1
        shutil.rmtree(repository / "wide")
        wait_until(lambda: not list(entries.iterdir()))
        assert server.get("/v2/models/wide").status_code == 404


def test_without_a_folder_that_can_be_written_the_weights_are_not_shared(
    tmp_path: Path, repository: Path
) -> None:
    """The log says so once, and the model is served as without a cache."""
    (tmp_path / "file").touch()
    with serving(*options(repository), TURNPIKE_CACHE=str(tmp_path / "file")) as server:
        assert len(answers(server)) == 1
        assert messages(server, PROBLEM) == [f"{PROBLEM}: {tmp_path}/file is a file"]
        assert mapped(server) == [set()] * WORKERS


def test_small_models_need_no_cache(tmp_path: Path) -> None:
    """No folder is made, and nothing is said if it could not be."""
    put_model(tmp_path / "models")
    (tmp_path / "file").touch()
    for cache in ("cache", "file"):
        with serving(*options(tmp_path / "models"), TURNPIKE_CACHE=str(tmp_path / cache)) as server:
            assert not messages(server, PROBLEM)
    assert not (tmp_path / "cache").exists()
