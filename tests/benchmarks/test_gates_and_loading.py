"""The benchmarks of gates and of model loading: what they measure, and their tables."""

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
from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.cost import gates_cost
from benchmarks.cost.gates_cost import gates_table
from benchmarks.errors import BenchmarkError, FailedRequestError
from benchmarks.measurement import wrk
from benchmarks.measurement.measure import Measurement, Workload
from benchmarks.measurement.wrk import LoadResult
from benchmarks.report import format_results
from benchmarks.results.results_file import ResultsWriter, read_results
from benchmarks.under_load import model_loading
from benchmarks.under_load.model_loading import loading_table


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
        return Measurement(LoadResult(requests, 1, 0.5, p99_ms, 9, 0, 0), 1.0, 0.5, 0.0)

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


def test_gates_are_compared_with_predictions_with_and_without_them(
    tmp_path: Path, fake_servers: FakeServers
) -> None:
    """Of both networks, in turn, by the exported file and by the bare one."""
    with ResultsWriter(tmp_path / "r.jsonl") as writer:
        gates_cost.measure_gates(writer, rounds=1, seconds=2)
    lines = read_results(tmp_path / "r.jsonl")
    assert [line["request"] for line in lines[1:4]] == [
        gates_cost.PREDICTION,
        gates_cost.GATES,
        gates_cost.WITHOUT_GATES,
    ]
    assert len(lines) == 1 + 2 * 3 * len(gates_cost.CONNECTIONS)
    assert (False, "/v2/models/S/gates", 64) in fake_servers.loads
    assert (True, "/v2/models/L/infer", 64) in fake_servers.loads
    text = format_results(lines)
    assert "| S, gates | 200 (1.50) | 200 (1.50) | 200 (1.50) |" in text
    assert "| L, prediction, no gates in the file | 330 (0.91) |" in text
    assert text == gates_table(lines)
    unverified = [
        files for contestant, files in fake_servers.servers if "--allow-unverified" in contestant.arguments
    ]
    assert unverified == [{"S": b"bare"}, {"L": b"bare"}]


@pytest.fixture
def posted_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests to load and unload; they are not sent."""
    paths: list[str] = []

    def post(port: int, path: str, request: EncodedRequest) -> tuple[bytes, dict[str, str]]:
        assert request.headers["Authorization"] == f"Bearer {model_loading.ADMIN_KEY}"
        paths.append(path)
        return b"{}", {}

    monkeypatch.setattr(wrk, "post", post)
    monkeypatch.setattr(model_loading, "PAUSE_SECONDS", 0.001)
    return paths


@pytest.mark.usefixtures("posted_paths")
def test_requests_are_measured_at_rest_and_while_a_model_loads(
    tmp_path: Path, fake_servers: FakeServers
) -> None:
    """With one worker and with two, each with as many threads as it chooses."""
    with ResultsWriter(tmp_path / "r.jsonl") as writer:
        model_loading.measure_loading(writer, rounds=1, seconds=2)
    lines = read_results(tmp_path / "r.jsonl")
    assert [line["what"] for line in lines[1:]] == ["rest", "loading"] * 4
    assert all(line["loads"] == 0 for line in lines[1::2])
    text = format_results(lines)
    assert "| 1 worker, 1 connection | 0.50 | 1.00 | 0.50 | 3.00 | 3.00 | 1.00 |" in text
    assert "| 2 workers, 16 connections | " in text
    assert text == loading_table(lines)
    contestants = [contestant for contestant, _ in fake_servers.servers]
    assert [(contestant.workers, contestant.threads) for contestant in contestants] == [(1, 0), (2, 0)]
    # loading requires a key
    variables = {"TURNPIKE_ADMIN_KEY": model_loading.ADMIN_KEY}
    assert all(contestant.variables == variables for contestant in contestants)
    assert all(files == {"S": b"graph", "L": b"graph"} for _, files in fake_servers.servers)


def test_loads_are_repeated_and_counted_until_the_end_of_the_context(posted_paths: list[str]) -> None:
    """Each is the load of a model that was unloaded before."""
    with model_loading.RepeatedLoads(1) as loads:
        while len(posted_paths) < 6:
            pass
    pair = ["/v2/repository/models/L/unload", "/v2/repository/models/L/load"]
    assert posted_paths == pair * loads.count
    assert loads.count >= 3
    assert not is_loading()


def test_a_failed_load_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def post(*arguments: Any) -> Any:
        raise FailedRequestError("load: expected 200, got 401")

    monkeypatch.setattr(wrk, "post", post)
    with pytest.raises(BenchmarkError, match="got 401"), model_loading.RepeatedLoads(1):
        pass
