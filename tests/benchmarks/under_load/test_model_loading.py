"""The cost of loading a model: what is measured, how loads are repeated, and the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError, FailedRequestError
from benchmarks.measurement import wrk
from benchmarks.report import format_results
from benchmarks.results.results_file import ResultsWriter, read_results
from benchmarks.under_load import model_loading
from benchmarks.under_load.model_loading import loading_table
from tests.benchmarks.conftest import FakeServers, is_loading


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
