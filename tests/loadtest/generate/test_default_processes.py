"""The default number of sending processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnpike.loadtest.generate.default_processes as module
from turnpike.loadtest.generate.default_processes import default_processes, is_this_machine, usable_cpus
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
    monkeypatch.setattr(module, "usable_cpus", lambda: float(cpus))
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


@pytest.mark.parametrize(("quota", "most"), [("50000 100000", 0.5), ("max 100000", 1e6), ("", 1e6)])
def test_the_quota_of_a_container_limits_the_cpus(quota: str, most: float, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cpus(file) == min(most, usable_cpus(tmp_path / "none"))
