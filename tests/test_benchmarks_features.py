"""What is measured of gates and of loads, beside what, and how it is told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells, gates, load, loading, processes
from benchmarks.bodies import Request
from benchmarks.contestants import OURS, Contestant
from benchmarks.errors import BenchmarkError, SilentError
from benchmarks.feature_tables import gates as gates_table
from benchmarks.feature_tables import loading as loading_table
from benchmarks.lines import Writer, read
from benchmarks.nets import L, Net
from benchmarks.report import tables


def under_way() -> bool:
    """Whether something is being loaded."""
    return any(thread.name == "loads" for thread in threading.enumerate())


class Started:
    """What was started, and what of it was loaded."""

    def __init__(self) -> None:
        self.words: list[tuple[str, ...]] = []
        self.loaded: list[tuple[bool, str, int]] = []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """Nothing is started or loaded; every network is one file."""
    noted = Started()

    @contextlib.contextmanager
    def serving(one: Contestant, net: Net) -> Iterator[Any]:
        noted.words.append(one.words)
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
        monkeypatch.setattr(module, "KEPT", tmp_path)
    (tmp_path / "bare.onnx").write_bytes(b"bare")
    file = tmp_path / "fp32" / "net" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"graph")
    monkeypatch.setattr(Net, "folder", tmp_path)
    monkeypatch.setattr(Net, "ensure", lambda net: None)
    monkeypatch.setattr(load, "expect_wrk", lambda: None)
    monkeypatch.setattr(processes, "keep_descendants", lambda: None)
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


def test_the_file_without_gates_is_the_bare_one(tmp_path: Path, started: Started) -> None:
    """Served as it is, from a folder that is gone afterwards."""
    with gates.bare(L) as one:
        (folder,) = [Path(word) for word in one.words if word.startswith(str(tmp_path))]
        assert (folder / "L" / "1" / "model.onnx").read_bytes() == b"bare"
        assert "--allow-unverified" in one.words
    assert not folder.exists()


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


def test_both_models_lie_in_the_folder_of_loads(tmp_path: Path, started: Started) -> None:
    """And a key is set, without which nobody may load."""
    with loading.both(2) as one:
        (folder,) = [Path(word) for word in one.words if word.startswith(str(tmp_path))]
        assert sorted(path.name for path in folder.iterdir()) == ["L", "S"]
        assert one.variables == {"TURNPIKE_ADMIN_KEY": loading.KEY}
        assert (one.workers, one.threads) == (2, 0)
    assert not folder.exists()
