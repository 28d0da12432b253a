"""The cost of a request shows every function that is called for it, and is compared with the record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost import request_cost
from benchmarks.cost.request_cost import RequestCost
from benchmarks.errors import BenchmarkError
from turnpike.service.telemetry.counters import RequestCounters

JSON = request_cost.one_row_requests()["JSON"]

traced = pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer counts or debugs this thread")


@traced
def test_one_more_call_per_request_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = request_cost.count_request(JSON)
    count_responses = RequestCounters.count_responses

    def wrapper(*arguments: Any) -> None:
        count_responses(*arguments)

    monkeypatch.setattr(RequestCounters, "count_responses", wrapper)
    assert request_cost.count_request(JSON).instructions > cost.instructions


@traced
@pytest.mark.parametrize("kind", request_cost.one_row_requests())
def test_counts_repeat(kind: str) -> None:
    """Each of the kinds has instructions and C calls, the same ones in a second worker."""
    request = request_cost.one_row_requests()[kind]
    cost = request_cost.count_request(request)
    assert cost == request_cost.count_request(request)
    assert cost.instructions > cost.c_calls > 0


def test_a_count_more_than_5_percent_above_the_record_fails() -> None:
    record = {"JSON": RequestCost(1000, 100), "gates": RequestCost(2000, 200)}
    assert (
        request_cost.increases({"JSON": RequestCost(1050, 105), "gates": RequestCost(900, 90)}, record) == []
    )
    costs = {"JSON": RequestCost(1051, 100), "gates": RequestCost(2000, 211)}
    assert request_cost.increases(costs, record) == [
        "JSON: expected at most 1,050 instructions (5% above the record), got 1,051",
        "gates: expected at most 210 C calls (5% above the record), got 211",
    ]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    costs = {"JSON": RequestCost(1000, 100)}
    request_cost.write_record(costs, tmp_path / "cost.json")
    assert request_cost.read_record(tmp_path / "cost.json") == costs
    assert request_cost.cost_table({"JSON": RequestCost(1100, 90)}, costs).endswith(
        "| JSON | 1,100 | 1,000 | +10.0% | 90 | 100 | -10.0% |"
    )


def test_a_record_of_another_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text('{"python": "3.9", "requests": {}}')
    with pytest.raises(BenchmarkError, match="expected to run on Python 3.9, got 3"):
        request_cost.read_record(path)


def test_a_missing_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="expected recorded costs, got .* --record writes them"):
        request_cost.read_record(tmp_path / "cost.json")
