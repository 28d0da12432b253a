"""The cost of gates: which requests are measured, and their table."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cost import gates_cost
from benchmarks.cost.gates_cost import gates_table
from benchmarks.report import format_results
from benchmarks.results.results_file import ResultsWriter, read_results
from tests.benchmarks.conftest import FakeServers


def test_gates_are_compared_with_predictions_with_and_without_them(
    tmp_path: Path, fake_servers: FakeServers
) -> None:
    """Both networks are measured in turn, with the exported file and with the bare one."""
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
