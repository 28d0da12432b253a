"""How the log describes the end of a worker."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from turnpike.service.process.worker_handle import ExitReasons


def ending(status: int, counts: Sequence[int | None], *, killed: bool = False) -> str:
    """The description, with these counts of the kernel at first and after the end."""
    return ExitReasons(iter(counts).__next__).describe(status, killed=killed)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2, 3], "was ended by SIGKILL (the kernel found no memory left: oom_kill is now 3)"),
        ([2, 2], "was ended by SIGKILL"),
        ([None, None], "was ended by SIGKILL (perhaps because the memory of the machine was used up)"),
    ],
)
def test_a_lack_of_memory_is_named(counts: list[int | None], expected: str) -> None:
    """The kernel counts the processes that it kills for that, and does so in containers only."""
    assert ending(-signal.SIGKILL, counts) == expected
    # we kill workers that hang
    assert ending(-signal.SIGKILL, counts, killed=True) == "was ended by SIGKILL"


def test_each_lack_of_memory_is_named_once() -> None:
    reasons = ExitReasons(iter([0, 1, 1]).__next__)
    assert "oom_kill is now 1" in reasons.describe(-signal.SIGKILL, killed=False)
    assert reasons.describe(-signal.SIGKILL, killed=False) == "was ended by SIGKILL"


def test_other_ends() -> None:
    assert ending(3, [0]) == "ended with status 3"
    assert ending(-signal.SIGSEGV, [0]) == "was ended by SIGSEGV"
    assert ending(-200, [0]) == "was ended by signal 200"
