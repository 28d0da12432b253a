"""Servers of benchmarks that are not started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.contestants.contestants import TURNPIKE, Contestant
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.cost import gates_cost
from benchmarks.measurement.measure import Measurement, Workload
from benchmarks.measurement.wrk import LoadResult
from benchmarks.under_load import model_loading


def is_loading() -> bool:
    return any(thread.name == model_loading.THREAD_NAME for thread in threading.enumerate())


class FakeServers:
    """The servers that would have been started, and the loads that would have been put on them."""

    def __init__(self) -> None:
        # each with the files in its temporary model repository, by name of the model
        self.servers: list[tuple[Contestant, dict[str, bytes]]] = []
        # whether the file has no proof, path, and connections
        self.loads: list[tuple[bool, str, int]] = []


@pytest.fixture
def fake_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeServers:
    """Nothing is started; all networks have the same two files."""
    fake = FakeServers()

    @contextlib.contextmanager
    def running_server(contestant: Contestant, network: BenchmarkNetwork) -> Iterator[Any]:
        repositories = [Path(word) for word in contestant.arguments if word.startswith(str(tmp_path))]
        files = {
            path.parts[-3]: path.read_bytes()
            for repository in repositories
            for path in repository.rglob("*.onnx")
        }
        fake.servers.append((contestant, files))
        path = TURNPIKE.paths["v2 JSON"].format(network=network.name)
        yield SimpleNamespace(contestant=contestant, port=1, path=lambda wire_format: path)

    def measure(
        server: Any, workload: Workload, seconds: int, paths: Sequence[str] = (), max_attempts: int = 3
    ) -> Measurement:
        unverified = "--allow-unverified" in server.contestant.arguments
        path = paths[0] if paths else "/v2/models/S/infer"
        fake.loads.append((unverified, path, workload.connections))
        requests = 200 if path.endswith("/gates") else 330 if unverified else 300
        p99_ms = 3.0 if is_loading() else 1.0
        load = LoadResult(requests, 1, lost=0, refused=0, p50_ms=0.5, p99_ms=p99_ms, max_ms=9)
        return Measurement(load, 1.0, 0.5, 0.0)

    for module in (gates_cost, model_loading):
        monkeypatch.setattr(module, "running_server", running_server)
        monkeypatch.setattr(module, "measure", measure)
        monkeypatch.setattr(module, "warm_up", lambda server, workload: None)
    monkeypatch.setattr(folders, "WORK_FOLDER", tmp_path)
    (tmp_path / "bare.onnx").write_bytes(b"bare")
    file = tmp_path / "fp32" / "net" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"graph")
    monkeypatch.setattr(BenchmarkNetwork, "folder", tmp_path)
    monkeypatch.setattr(BenchmarkNetwork, "ensure_files", lambda network: None)
    return fake
