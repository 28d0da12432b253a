"""Time is attributed to functions from py-spy's stacks, and the quietest attempt counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks.measurement.measure import Workload
from benchmarks.under_load import worker_profile
from benchmarks.under_load.worker_profile import count_samples, profile_tables, quietest_samples

if TYPE_CHECKING:
    from benchmarks.measurement.server_process import RunningServer

LOOP = "0x7f (libc.so.6);run (asyncio/runners.py:190)"


def test_time_counts_for_functions_libraries_and_system_calls() -> None:
    """The interpreter's own work counts for the Python function that it runs."""
    stacks = [
        f"{LOOP};submit (service/batching/batcher.py:9);Py_DECREF (libpython3.11.so.1.0) 5",
        f"{LOOP};submit (service/batching/batcher.py:31) 3",
        f"{LOOP};run (service/batching/batch_run.py:7);0x7f (onnxruntime/capi/x.so);0x7e (libc.so.6) 4",
        f"{LOOP};uv__write (stream.c:3);write (libc.so.6) 2",
    ]
    assert count_samples(stacks) == {
        "submit (service/batching/batcher.py)": 8,
        "onnxruntime (native code)": 4,
        "write (system)": 2,
    }


def test_waiting_is_no_work() -> None:
    """Neither an event loop that waits for requests nor a pool's thread without a task counts."""
    stacks = [
        f"{LOOP};uv__io_poll (linux.c:3);epoll_pwait (libc.so.6) 50",
        "_worker (concurrent/futures/thread.py:81);get (_queuemodule.c:2);0x7e (libc.so.6) 70",
        f"{LOOP};finished (service/requests/observer.py:1) 1",
    ]
    assert count_samples(stacks) == {"finished (service/requests/observer.py)": 1}


@pytest.mark.parametrize(
    ("other_cpus", "attempts", "counted"), [([0.1], 1, 0), ([0.9, 0.2], 2, 1), ([0.9, 0.5, 0.7], 3, 1)]
)
def test_the_quietest_attempt_counts(
    other_cpus: list[float], attempts: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts end when other processes are quiet, or after three."""
    measured: list[float] = []

    def measure(*arguments: Any, **options: Any) -> Any:
        measured.append(other_cpus[len(measured)])
        return SimpleNamespace(other_cpus=measured[-1])

    stacks = iter([f"{LOOP};attempt{number} (service/a.py:1) 1"] for number in range(3))
    monkeypatch.setattr(worker_profile, "measure", measure)
    monkeypatch.setattr(worker_profile, "find_worker", lambda: None)
    monkeypatch.setattr(worker_profile, "sample_stacks", lambda *arguments: next(stacks))
    samples = quietest_samples(Path("py-spy"), cast("RunningServer", None), Workload("JSON", 1, 1), "/", 1)
    assert samples == {f"attempt{counted} (service/a.py)": 1}
    assert len(measured) == attempts


def test_each_workload_has_a_table() -> None:
    line = {"kind": "profile", "net": "S", "request": "JSON", "rows": 1, "connections": 64}
    tables = profile_tables(
        [{"kind": "machine"}, {**line, "what": "finished (service/requests/observer.py)", "share": 0.125}]
    )
    assert "**S, JSON, rows: 1, connections: 64**" in tables
    assert "| `finished (service/requests/observer.py)` | 12.5% |" in tables
