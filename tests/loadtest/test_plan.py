"""A plan rejects invalid options before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "127.0.0.1:8000"}, "URL: expected http://... or https://..., got '127.0.0.1:8000'"),
        ({"wire": "grpc"}, "--wire: expected one of json, binary, v1, gates, lesion, mixed, got 'grpc'"),
        ({"shape": "wave"}, "--shape: expected one of constant, ramp, spike, soak, step, got 'wave'"),
        ({"rows": ()}, "--rows: expected whole numbers of 1 or more"),
        ({"rows": (1, 0)}, "--rows: expected whole numbers of 1 or more"),
        ({"users": 0}, "--users: expected 1 or more, got 0"),
        ({"seed": -1}, "--seed: expected 0 or more, got -1"),
        ({"tolerance": float("nan")}, "--tolerance: expected 0 or more, got nan"),
        ({"warmup": -1}, "--warmup: expected 0 or more, got -1"),
        ({"spawn_rate": 0}, "--spawn-rate: expected more than 0, got 0"),
        ({"duration": float("nan")}, "--duration: expected more than 0, got nan"),
        ({"rate": -1}, "--rate: expected more than 0, got -1"),
        ({"find_capacity": True}, "--find-capacity: needs --slo"),
        ({"find_capacity": True, "rate": 5}, "--find-capacity: searches for the rate itself"),
    ],
)
def test_invalid_options_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        LoadPlan(**({"url": URL} | changes))
    assert str(error.value).startswith(message)


def test_a_rate_or_a_search_makes_an_open_loop() -> None:
    assert not LoadPlan(URL).open_loop
    assert LoadPlan(URL, rate=10).open_loop
    assert LoadPlan(URL, find_capacity=True, slo=Slo.parse("p99<50ms")).open_loop
