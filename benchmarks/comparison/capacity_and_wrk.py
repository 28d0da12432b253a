"""Compares the capacity that `turnpike loadtest --find-capacity` finds with the rate of wrk before and after.

    python -m benchmarks.comparison.capacity_and_wrk [--rounds N] [--step-seconds N] [--busy-from SHARE]

Both load one worker that serves S. `--busy-from 0.3` has a busy process on each CPU for a third of the
search, from this share of the time that the search before it took. Requires wrk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.loadtest_and_wrk import wrk_rate
from benchmarks.contestants.contestants import turnpike
from benchmarks.contestants.networks import NETWORK_S
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.server_process import RunningServer, running_server
from benchmarks.measurement.wrk import HOST, require_wrk
from turnpike.common.cpus import affinity_cpus

SLO = "p99<50ms, errors<0.1%"
USERS = 50
# seconds of each load by wrk
WRK_SECONDS = 4
# seconds of the first search, which no search before it says
FIRST_SEARCH_SECONDS = 100.0


@dataclass(frozen=True)
class Search:
    """A search: its result, and how long it took."""

    capacity: dict[str, Any]
    seconds: float


def search(server: RunningServer, step_seconds: int) -> Search:
    """Run `turnpike loadtest --find-capacity`."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "turnpike", "loadtest", f"http://{HOST}:{server.port}"]
        command += ["--find-capacity", "--slo", SLO, "--step-seconds", str(step_seconds), "--report", folder]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        if process.returncode:
            output = (process.stderr or process.stdout).strip()
            raise BenchmarkError(f"turnpike loadtest: expected a capacity, got: {output[-300:]}")
        report = json.loads((Path(folder) / "loadtest.json").read_text(encoding="utf-8"))
    return Search(report["capacity"], time.monotonic() - begun)


@contextlib.contextmanager
def busy_cpus(begin: float, end: float) -> Iterator[None]:
    """Have a busy process on each CPU from `begin` to `end` seconds from now, while the block runs."""
    ended = threading.Event()

    def run() -> None:
        if ended.wait(begin):
            return
        command = [sys.executable, "-c", "while True: pass"]
        programs = [subprocess.Popen(command) for _ in range(affinity_cpus())]
        ended.wait(end - begin)
        for program in programs:
            program.kill()
            program.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    program = "python -m benchmarks.comparison.capacity_and_wrk"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--step-seconds", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--busy-from", type=float, help="share of the search, from 0 to 0.67")
    arguments = parser.parse_args()
    require_wrk()
    processes.adopt_descendants()
    NETWORK_S.ensure_files()
    seconds = FIRST_SEARCH_SECONDS
    with running_server(turnpike("turnpike", workers=1, threads=1), NETWORK_S) as server:
        for _ in range(arguments.rounds):
            before = wrk_rate(server, USERS, WRK_SECONDS)
            with contextlib.ExitStack() as stack:
                if arguments.busy_from is not None:
                    begin = arguments.busy_from * seconds
                    stack.enter_context(busy_cpus(begin, begin + seconds / 3))
                result = search(server, arguments.step_seconds)
            after = wrk_rate(server, USERS, WRK_SECONDS)
            seconds, capacity = result.seconds, result.capacity
            bound = (
                "" if capacity["limited_by"] == "server" else f"at least (limit: {capacity['limited_by']}) "
            )
            wrk = f", wrk at its end {capacity['wrk']['rate']:,.0f}/s" if capacity["wrk"] else ""
            print(
                f"wrk {before:,.0f}/s, capacity {bound}{capacity['rate']:,.0f}/s{wrk}, wrk {after:,.0f}/s; "
                f"{len(capacity['steps'])} steps, {seconds:.0f} s"
            )


if __name__ == "__main__":
    main()
