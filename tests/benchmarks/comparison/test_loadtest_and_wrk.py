"""The comparison of `turnpike loadtest` with wrk: a load that fails is reported with its reason."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.comparison.loadtest_and_wrk import loadtest_rate
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.server_process import RunningServer

# nothing listens on this port
SERVER = cast("RunningServer", SimpleNamespace(port=9))


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(
        BenchmarkError, match=r"^turnpike loadtest: expected good answers, got: .*127\.0\.0\.1:9"
    ):
        loadtest_rate(SERVER, 2, 1)


def test_many_bad_answers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load test then exits with 1, and its last line says why."""
    reason = "errors: 12 of 100, and there is no --slo that allows this many"

    def fail(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert not options["check"]
        return subprocess.CompletedProcess(command, 1, f"a table\n{reason}\n", "")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(BenchmarkError, match=reason):
        loadtest_rate(SERVER, 2, 1)
