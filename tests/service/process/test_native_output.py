"""What libraries in C print to the standard error of a worker becomes lines of the log."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.fake_service import problems, running, status_of
from tests.support.waiting import wait_until


def test_what_a_library_prints_is_logged(tmp_path: Path) -> None:
    """A line for each line, without colours and empty ones. A line that is not complete waits for its end."""
    with running(tmp_path) as service:
        (pid,) = service.pids(1)
        for printed in ("%1b[0;93mone%1b[m%0a%0a", "tw", "o%0a", "three"):
            service.get(f"/print?{printed}")
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        worker = f"worker 1 (process {pid})"
        assert problems(service) == [f"{worker}: one", f"{worker}: two", f"{worker}: three"]
        assert {line["level"] for line in service.lines} == {"info", "warning"}


def test_the_last_words_of_a_worker_are_logged(tmp_path: Path) -> None:
    """The C library says why it ends a process. The log has that before the end itself."""
    with running(tmp_path) as service:
        (pid,) = service.pids(1)
        assert status_of(service, "/abort?free():%20invalid%20pointer") == 0
        wait_until(lambda: len(problems(service)) >= 2)
        assert problems(service)[:2] == [
            f"worker 1 (process {pid}): free(): invalid pointer",
            f"worker 1 (process {pid}) was ended by SIGABRT; a new one starts in 0.1 s",
        ]


def test_a_library_that_prints_much_stops_nothing(tmp_path: Path) -> None:
    """Not even if the supervisor does not read it. What finds no room is lost."""
    with running(tmp_path) as service:
        service.pids(1)
        service.signal(signal.SIGSTOP)
        # more than a pipe takes
        for _ in range(10):
            service.get(f"/print?{'x' * 20_000}%0a")
        service.signal(signal.SIGCONT)
        wait_until(lambda: len(problems(service)) >= 1)
        assert "xxx" in problems(service)[0]
        assert service.get("/")["draining"] is False
