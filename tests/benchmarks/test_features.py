"""What is measured of gates and of loads, beside what, and how it is told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells, folder, gates, load, loading
from benchmarks.bodies import Request
from benchmarks.contestants import OURS, Contestant
from benchmarks.errors import BenchmarkError, SilentError
from benchmarks.feature_tables import gates as gates_table
from benchmarks.feature_tables import loading as loading_table
from benchmarks.lines import Writer, read
from benchmarks.nets import Net
from benchmarks.report import tables


def under_way() -> bool:
    """Whether something is being loaded."""
    return any(thread.name == "loads" for thread in threading.enumerate())


class Started:
    """What was started, and what of it was loaded."""

    def __init__(self) -> None:
        # each with what lies in its folder of models
        self.servers: list[tuple[Contestant, dict[str, bytes]]] = []
        self.loaded: list[tuple[bool, str, int]] = []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """Nothing is started or loaded; every network is one file."""
    noted = Started()

    @contextlib.contextmanager
    def serving(one: Contestant, net: Net) -> Iterator[Any]:
        folders = [Path(word) for word in one.words if word.startswith(str(tmp_path))]
        files = {path.parts[-3]: path.read_bytes() for folder in folders for path in folder.rglob("*.onnx")}
        noted.servers.append((one, files))
        path = OURS.forms["v2 JSON"].format(net=net.name)
        yield SimpleNamespace(contestant=one, port=1, path=lambda form: path)

    def measured(
        server: Any, cell: cells.Cell, seconds: int, paths: Sequence[str] = (), tries: int = 3
    ) -> cells.Measured:
        bare = "--allow-unverified" in server.contestant.words
        path = paths[0] if paths else "/v2/models/S/infer"
        noted.loaded.append((bare, path, cell.connections))
        requests = 200 if path.endswith("/gates") else 330 if bare else 300
        # what is asked for while something is loaded takes three times as long
        p99 = 3.0 if under_way() else 1.0
        return cells.Measured(load.Load(requests, 1, 0.5, p99, 9, 0, 0), 1.0, 0.5, 0.0)

    for module in (gates, loading):
        monkeypatch.setattr(module, "serving", serving)
        monkeypatch.setattr(module, "measured", measured)
    monkeypatch.setattr(folder, "KEPT", tmp_path)
    (tmp_path / "bare.onnx").write_bytes(b"bare")
    file = tmp_path / "fp32" / "net" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"graph")
    monkeypatch.setattr(Net, "folder", tmp_path)
    monkeypatch.setattr(Net, "ensure", lambda net: None)
    return noted


def test_gates_are_measured_beside_predictions_with_and_without_them(
    tmp_path: Path, started: Started
) -> None:
    """Of both networks, in turn, from our own file and from the bare one."""
    with Writer(tmp_path / "r.jsonl") as writer:
        gates.compare(writer, rounds=1, seconds=2)
    lines = read(tmp_path / "r.jsonl")
    assert [line["request"] for line in lines[1:4]] == [gates.PREDICTION, gates.GATES, gates.WITHOUT]
    assert len(lines) == 1 + 2 * 3 * len(gates.CONNECTIONS)
    assert (False, "/v2/models/S/gates", 64) in started.loaded
    assert (True, "/v2/models/L/infer", 64) in started.loaded
    told = tables(lines)
    assert "| S, gates | 200 (1.50) | 200 (1.50) | 200 (1.50) |" in told
    assert "| L, prediction, no gates in the file | 330 (0.91) |" in told
    assert told == gates_table(lines)
    # the file without gates is the bare one, served as it is
    bare = [files for one, files in started.servers if "--allow-unverified" in one.words]
    assert bare == [{"S": b"bare"}, {"L": b"bare"}]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the repository was asked for."""
    paths: list[str] = []

    def ask(port: int, path: str, request: Request) -> tuple[bytes, dict[str, str]]:
        assert request.headers["Authorization"] == f"Bearer {loading.KEY}"
        paths.append(path)
        return b"{}", {}

    monkeypatch.setattr(load, "ask", ask)
    monkeypatch.setattr(loading, "REST_SECONDS", 0.001)
    return paths


def test_loads_are_measured_beside_rest(tmp_path: Path, started: Started, asked: list[str]) -> None:
    """With one worker and with two, each with as many threads as it takes by itself."""
    with Writer(tmp_path / "r.jsonl") as writer:
        loading.compare(writer, rounds=1, seconds=2)
    lines = read(tmp_path / "r.jsonl")
    assert [line["what"] for line in lines[1:]] == ["rest", "loading"] * 4
    assert all(line["loads"] == 0 for line in lines[1::2])
    told = tables(lines)
    assert "| 1 worker, 1 connection | 0.50 | 1.00 | 0.50 | 3.00 | 3.00 | 1.00 |" in told
    assert "| 2 workers, 16 connections | " in told
    assert told == loading_table(lines)
    assert [(one.workers, one.threads) for one, _ in started.servers] == [(1, 0), (2, 0)]
    # and a key is set, without which nobody may load
    assert all(one.variables == {"TURNPIKE_ADMIN_KEY": loading.KEY} for one, _ in started.servers)
    assert all(files == {"S": b"graph", "L": b"graph"} for _, files in started.servers)


def test_loads_go_on_until_they_are_left(asked: list[str]) -> None:
    """Each is a load of what was not there, and is counted."""
    with loading.Loads(1) as loads:
        while len(asked) < 6:
            pass
    assert asked == ["/v2/repository/models/L/unload", "/v2/repository/models/L/load"] * loads.count
    assert loads.count >= 3
    assert not under_way()


def test_loads_that_fail_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured meanwhile is nothing."""

    def ask(*of: Any) -> Any:
        raise SilentError("load: expected 200, got 401")

    monkeypatch.setattr(load, "ask", ask)
    with pytest.raises(BenchmarkError, match="got 401"), loading.Loads(1):
        pass
