"""The default number of sending processes."""

from __future__ import annotations

import pytest

import turnpike.loadtest.generate.default_processes as module
from turnpike.loadtest.generate.default_processes import default_processes, is_this_machine
from turnpike.loadtest.plan import LoadPlan

# a documentation address (RFC 5737), which no machine has
ELSEWHERE = "http://192.0.2.1:8000"
HERE = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("cpus", "url", "processes"),
    [(1, HERE, 1), (2, HERE, 1), (8, HERE, 4), (1.5, ELSEWHERE, 1), (2, ELSEWHERE, 2), (8, ELSEWHERE, 8)],
)
def test_a_server_on_this_machine_keeps_half_of_the_cpus(
    cpus: float, url: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_cpus", lambda: float(cpus))
    assert default_processes(LoadPlan(url, rate=1)) == processes
    assert default_processes(LoadPlan(url, users=100)) == processes
    # a process without a user would send nothing
    assert default_processes(LoadPlan(url, users=1)) == 1


def test_addresses_of_this_machine_are_known() -> None:
    assert is_this_machine("127.0.0.1")
    assert is_this_machine("localhost")
    assert is_this_machine("::1") or not is_this_machine("fe80::1")
    assert not is_this_machine("192.0.2.1")
    assert not is_this_machine("no-such-host.invalid")
    assert not is_this_machine("x" * 300)
