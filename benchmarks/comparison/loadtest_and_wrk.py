"""Compares the rates that `turnpike loadtest` and wrk reach against the same server.

    python -m benchmarks.comparison.loadtest_and_wrk [--users N] [--seconds N] [--rounds N]

Each sends from one process, in turn, to one worker that serves S. Requires wrk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.contestants.contestants import turnpike
from benchmarks.contestants.networks import NETWORK_S
from benchmarks.contestants.wire_formats import encode_request
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.server_process import RunningServer, running_server
from benchmarks.measurement.wrk import HOST, require_wrk, run_wrk


def wrk_rate(server: RunningServer, users: int, seconds: int) -> float:
    """Answers per second to wrk."""
    request = encode_request("v2 JSON", NETWORK_S.rows[:1])
    return run_wrk(server.port, [server.path("v2 JSON")], request, users, seconds).rate


def loadtest_rate(server: RunningServer, users: int, seconds: int) -> float:
    """Good answers per second to `turnpike loadtest`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "turnpike", "loadtest", f"http://{HOST}:{server.port}"]
        command += ["--users", str(users), "--spawn-rate", str(users), "--processes", "1", "--warmup", "1"]
        command += ["--duration", str(seconds), "--report", folder]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        if process.returncode:
            output = (process.stderr or process.stdout).strip()
            raise BenchmarkError(f"turnpike loadtest: expected good answers, got: {output[-300:]}")
        report = json.loads((Path(folder) / "loadtest.json").read_text(encoding="utf-8"))
    result = report["total"]
    if result["bad"]:
        raise BenchmarkError(f"turnpike loadtest: expected good answers only, got {result['bad']} others")
    return float(result["rate"])


def main() -> None:
    program = "python -m benchmarks.comparison.loadtest_and_wrk"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--users", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=8, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="(default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    processes.adopt_descendants()
    NETWORK_S.ensure_files()
    shares = []
    with running_server(turnpike("turnpike", workers=1, threads=1), NETWORK_S) as server:
        for _ in range(arguments.rounds):
            wrk = wrk_rate(server, arguments.users, arguments.seconds)
            ours = loadtest_rate(server, arguments.users, arguments.seconds)
            shares.append(ours / wrk)
            print(f"wrk {wrk:,.0f}/s, turnpike loadtest {ours:,.0f}/s: {ours / wrk:.2f}")
    print(f"median of the ratios: {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
