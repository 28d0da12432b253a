"""Durations are measured with a monotonic clock, which does not jump when somebody sets the time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.source_files import PACKAGES, ROOT, files, write

# every use of the wall clock, which jumps: they write the time of an event for somebody to read, or compare
# it with the times of files
WALL_CLOCK_USES = {
    "loadtest/ledger.py: time.time",  # once, to show monotonic times as dates
    "service/http/connection/server.py: time.time",
    "service/requests/payload_events.py: time.time",
    "service/requests/tracing.py: time.time_ns",
    "service/telemetry/access_log.py: datetime.now",
    "service/telemetry/access_log.py: time.time_ns",
    "service/telemetry/counters.py: time.time",
    "service/telemetry/counters.py: time.time_ns",
    "service/telemetry/log.py: datetime.now",
    "service/weights/cache.py: time.time",
    "service/weights/cache.py: time.time_ns",
    "service/weights/entry.py: time.time_ns",
    "tune/run.py: datetime.now",
}
WALL_CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "asctime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}


def wall_clock_uses(root: Path = ROOT) -> set[str]:
    """Every file of the packages that reads the wall clock, with the function it does this with."""
    uses = set()
    for package in PACKAGES:
        for path in files(package, root):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                    owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                    names = {(owner, node.attr)}
                elif isinstance(node, ast.ImportFrom):
                    names = {(str(node.module), alias.name) for alias in node.names}
                else:
                    continue
                uses |= {
                    f"{path.relative_to(root)}: {owner}.{name}"
                    for owner, name in names
                    if name in WALL_CLOCKS.get(owner, ())
                }
    return uses


def test_durations_are_measured_with_a_monotonic_clock() -> None:
    """A use of the wall clock that is not listed here may measure a duration."""
    assert wall_clock_uses() == WALL_CLOCK_USES
    scripts = [path for path in (ROOT / "service/dashboard").rglob("*.js") if "Date." in path.read_text()]
    assert scripts == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import time\ndeadline = time.time() + 1\n", "time.time"),
        ("from time import time_ns\n", "time.time_ns"),
        ("import datetime\nage = datetime.datetime.now() - then\n", "datetime.now"),
    ],
)
def test_the_clock_check_finds_wall_clocks(tmp_path: Path, code: str, name: str) -> None:
    write(tmp_path, service__queue=code)
    assert wall_clock_uses(tmp_path) == {f"service/queue.py: {name}"}
