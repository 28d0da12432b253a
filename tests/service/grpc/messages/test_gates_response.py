"""The summaries of gates in messages have the numbers and errors of those in JSON."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import pytest

from tests.support.gate_arrays import gate, random_gates
from tests.support.infer_messages import as_json
from turnpike.service.codec.gates_response import JsonSummaries
from turnpike.service.errors import NotFiniteError
from turnpike.service.gates.answers import RunStatistics
from turnpike.service.grpc.messages.gates_response import MessageSummaries

GATES = [gate("a", 0), gate("b", 1, depth=2, time=0), gate("c", 1, depth=2, time=1)]
LEVELS = (0.05, 0.5)


def statistics(requests: int, rows: int, per: Literal["row", "request"] = "row") -> RunStatistics:
    """Any statistics; those without rows have no numbers."""
    routes = [random_gates(requests, rows, seed=seed) for seed in (1, 2)]
    table = random_gates(requests, len(GATES), 5 + len(LEVELS)) if rows else np.empty((requests, 0), "f4")
    return RunStatistics(per, table, *routes, np.arange(requests * rows).reshape(requests, rows))


@pytest.mark.parametrize("per", ["row", "request"])
@pytest.mark.parametrize(("requests", "rows"), [(1, 1), (5, 3), (2, 0)])
def test_numbers_are_those_of_json(requests: int, rows: int, per: Literal["row", "request"]) -> None:
    """Those from 0 to 1 have six decimals. One request has others, and is written with all their digits."""
    run = statistics(requests, rows, per)
    if rows:
        run.table[-1, 0, :3] = -0.0, 12.3456789, -1e-9
        run.table[0, 1, :3] = 0, 1, 0.1
    messages = MessageSummaries(GATES, LEVELS)(run)
    summaries = JsonSummaries(GATES, LEVELS)(run)
    assert len(messages) == requests
    for message, summary in zip(messages, summaries, strict=True):
        assert not isinstance(summary, NotFiniteError)
        gates, route = map(json.loads, summary)
        assert as_json(message.route) == route
        if rows:
            assert [as_json(entry) for entry in message.gates] == gates
        else:
            assert not any(entry.HasField("mean") or entry.quantiles for entry in message.gates)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_the_error_of_its_own_request(value: float) -> None:
    run = statistics(3, 1)
    run.table[1, 2, 4] = value
    for make in (MessageSummaries, JsonSummaries):
        first, second, third = make(GATES, LEVELS)(run)
        assert isinstance(second, NotFiniteError)
        assert str(second) == "gates: expected rows on which every gate is a number, got NaN in 'c'"
        assert not any(isinstance(summary, NotFiniteError) for summary in (first, third))
