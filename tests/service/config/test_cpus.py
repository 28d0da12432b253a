"""The division of CPUs among workers and their threads."""

from __future__ import annotations

import pytest

from turnpike.service.config import cpus
from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.config.settings import Settings


@pytest.mark.parametrize(
    ("allowed", "workers", "threads", "expected"),
    [(8, 1, 0, 8), (8, 3, 0, 2), (1, 1, 0, 1), (2, 4, 0, 1), (2, 4, 6, 6)],
)
def test_threads_are_divided_among_workers(
    monkeypatch: pytest.MonkeyPatch, allowed: int, workers: int, threads: int, expected: int
) -> None:
    """At least one thread for each worker, or the number of the setting."""
    monkeypatch.setattr(cpus, "whole_cpus", lambda: allowed)
    assert threads_per_worker(Settings(workers=workers, threads=threads)) == expected
