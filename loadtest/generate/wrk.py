"""Loads a server with wrk, which sends more requests per second than our own processes can.

wrk looks only at the status of an answer, so it gets requests whose answers were checked before. It has no
schedule: each of its connections waits for an answer before it sends the next request (closed loop).
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from turnpike.loadtest.generate.sender import CYCLE_LENGTH, prepare, request_cycle
from turnpike.loadtest.ledger import LatencyHistogram, OutcomeTotals, PeriodSummary
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.payloads import Payload

# points of the distribution of latencies that the script prints
QUANTILES = 1000
# wrk counts microseconds
MICROSECOND = 1e-6
# `requests` has a line with the length of each request before its bytes; `order` has a number in each line
SCRIPT = f"""
local threads = 0
function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end
local requests, order, place = {{}}, {{}}, 0
function init()
  local file = assert(io.open("requests", "rb"))
  for length in function() return file:read("*n", 1) end do
    requests[#requests + 1] = file:read(length)
  end
  for line in io.lines("order") do order[#order + 1] = tonumber(line) end
  place = number * 997 -- threads send in the same order, but begin at different places
end
function request()
  place = place % #order + 1
  return requests[order[place]]
end
function done(summary, latency)
  local errors, quantiles = summary.errors, {{}}
  for i = 1, {QUANTILES} do
    quantiles[i] = string.format("%d", latency:percentile(i * 100 / {QUANTILES}))
  end
  io.write(string.format(
    '\\n{{"requests": %d, "duration": %d, "refused": %d, "lost": %d, "quantiles": [%s]}}\\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, table.concat(quantiles, ",")
  ))
end
"""


def find_wrk(plan: LoadPlan) -> str | None:
    """The program, if it is installed. It does not check TLS certificates, so it is used without TLS only."""
    return shutil.which("wrk") if urlsplit(plan.url).scheme == "http" else None


class WrkProcess:
    """A run of wrk; the end of the block ends it."""

    def __init__(self, program: str, plan: LoadPlan, payloads: Sequence[Payload], seconds: int) -> None:
        """Prepare a run with the planned number of users.

        Args:
            program: The path of wrk.
            plan: The server and the users.
            payloads: What to send.
            seconds: How long.
        """
        self._requests = prepare(plan, payloads)
        self._seed = str(plan.seed)
        threads = min(plan.process_count, plan.users)
        options = [
            f"-t{threads}",
            f"-c{plan.users}",
            f"-d{seconds}s",
            f"--timeout={math.ceil(plan.timeout)}s",
        ]
        self._command = [program, *options, "--script", "load.lua", plan.url]

    def __enter__(self) -> Self:
        # the requests may have an API key: only this user can read the folder
        self._folder = tempfile.TemporaryDirectory(prefix="turnpike-wrk-")
        folder = Path(self._folder.name)
        numbers = {request: number for number, request in enumerate(self._requests, 1)}
        cycle = islice(request_cycle(self._requests, self._seed), CYCLE_LENGTH)
        (folder / "load.lua").write_text(SCRIPT, encoding="utf-8")
        (folder / "order").write_text("".join(f"{numbers[request]}\n" for request in cycle), encoding="utf-8")
        (folder / "requests").write_bytes(
            b"".join(b"%d\n%b" % (len(request.data), request.data) for request in self._requests)
        )
        with (folder / "output").open("wb") as output:
            # safe: the arguments are our own, and no shell reads them
            self._process = subprocess.Popen(  # noqa: S603
                self._command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def summary(self) -> PeriodSummary | None:
        """The result of a run that has ended; None if it failed."""
        output = (Path(self._folder.name) / "output").read_text(encoding="utf-8", errors="replace")
        results = [line for line in output.splitlines() if line.startswith('{"requests"')]
        return summarize(json.loads(results[-1])) if results and not self._process.returncode else None


def summarize(result: dict[str, Any]) -> PeriodSummary:
    """The counts that the script has printed. The latencies of refused requests count like all others."""
    good = result["requests"] - result["refused"]
    histogram = LatencyHistogram()
    if good:
        # as many latencies as there are good answers, evenly over the quantiles
        quantiles = np.array(result["quantiles"]) * MICROSECOND
        histogram.add_all(quantiles[np.arange(good) * len(quantiles) // good])
    faults = {"refused": result["refused"], "no answer": result["lost"]}
    totals = OutcomeTotals(latency=histogram, faults=+Counter(faults))
    return PeriodSummary(result["duration"] * MICROSECOND, totals)
