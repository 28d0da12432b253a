"""The load of a trial, as a program: `python -m tune.trial.load_process OPTIONS FILE`.

It sends the requests of `turnpike loadtest` and checks answers in the same way, but its users take less CPU
time. A user of loadtest takes more CPU time per request than a small model takes to answer it, so on one
machine the measurement would show the users instead of the server.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import selectors
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

from loadtest.cli.options import parse_plan
from loadtest.errors import LoadTestError
from loadtest.generate.sender import prepare, request_cycle
from loadtest.ledger import OutcomeTotals, PeriodSummary
from loadtest.plan import LoadPlan
from loadtest.slo import DEFAULT_ERROR_LIMIT, Slo
from loadtest.workload.workload import Workload
from tune.trial.load_client import LOST, LoadClient

# share of a CPU: a process that uses more can hardly send faster
MAX_BUSY = 0.85
SENDERS_BUSY = (
    "The sending processes were busy nearly all of the time: the server may be faster than measured, and "
    "more workers may help if the users are on other machines."
)
# seconds between checks whether the leading process still runs
POLL_SECONDS = 0.5


def run(plan: LoadPlan) -> dict[str, Any]:
    """Send for the planned time from several processes; returns a report."""
    workload = Workload(plan)
    workload.payloads(plan.wire)
    # closes when this process ends, however it ends, and the senders end with it
    lifeline, lifeline_write_end = os.pipe()
    # users of each process
    shares = [
        plan.users * (index + 1) // plan.processes - plan.users * index // plan.processes
        for index in range(plan.processes)
    ]
    pipes = []
    for number, users in enumerate(shares):
        read_end, write_end = os.pipe()
        if not os.fork():
            os.close(lifeline_write_end)
            _run_sender(plan, workload, users, f"worker {number}", lifeline, write_end)
        os.close(write_end)
        pipes.append(read_end)
    # add up the results of all processes
    totals, busy = OutcomeTotals(), 0.0
    for read_end in pipes:
        with os.fdopen(read_end, "rb") as pipe:
            data = pipe.read()
        if not data:
            raise LoadTestError("a sending process ended early")
        process_totals, process_busy = json.loads(data)
        totals.merge(OutcomeTotals.from_json(process_totals))
        busy = max(busy, process_busy)
    return report(plan, PeriodSummary(plan.duration, totals), busy)


def report(plan: LoadPlan, summary: PeriodSummary, busy: float) -> dict[str, Any]:
    """The figures, with the keys of loadtest's `loadtest.json`."""
    slo = plan.slo or Slo((DEFAULT_ERROR_LIMIT,))
    wrong = sum(count for fault, count in summary.totals.faults.items() if fault.startswith("wrong"))
    failures = [f"the SLO was missed: {limit.text}" for limit in slo.missed(summary)]
    percentiles = {name: summary.percentile(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {
        "total": {"rate": summary.rate}
        | {name: value if math.isfinite(value) else None for name, value in percentiles.items()},
        "load": {"users": plan.users},
        "verdict": {"failures": [*failures, *[f"wrong answers: {wrong:,}"] * bool(wrong)]},
        "notes": [SENDERS_BUSY] * (busy > MAX_BUSY),
    }


def _run_sender(
    plan: LoadPlan, workload: Workload, users: int, name: str, lifeline: int, result_pipe: int
) -> NoReturn:
    """Run in a forked process: send, write the result to the pipe, and end the process."""
    try:
        # objects that exist now live as long as the process: keep the garbage collector from scanning them
        gc.collect()
        gc.freeze()
        totals, busy = run_users(plan, workload, users, name, lifeline)
        os.write(result_pipe, json.dumps([totals.to_json(), busy]).encode())
    finally:
        os._exit(0)


def run_users(
    plan: LoadPlan, workload: Workload, count: int, name: str, lifeline: int
) -> tuple[OutcomeTotals, float]:
    """Run users until the time is over; returns the outcomes after the warm-up, and the share of a CPU used.

    Args:
        plan: The requests to send, and for how long.
        workload: The requests and their expected answers.
        count: Number of users.
        name: Part of the random seed, so that processes send different sequences.
        lifeline: File descriptor that closes when the leading process ends.
    """
    totals = OutcomeTotals()
    requests = prepare(plan, workload.payloads(plan.wire))
    correct_answers: dict[Any, bytes] = {}
    users = [
        LoadClient(plan.url, request_cycle(requests, f"{name} {number}"), workload.checker, correct_answers)
        for number in range(count)
    ]
    first = perf_counter() + plan.warmup
    last = first + plan.duration
    cpu_at_first: float | None = None
    with selectors.DefaultSelector() as selector:
        # every user sends its first request
        selector.register(lifeline, selectors.EVENT_READ)
        for user in users:
            selector.register(user.connection, selectors.EVENT_READ, user)
            user.send()
        # each answer is counted, and followed by the user's next request
        while (now := perf_counter()) < last:
            if cpu_at_first is None and now >= first:
                cpu_at_first = _cpu_seconds()
            for key, _ in selector.select(min(POLL_SECONDS, last - now)):
                user = key.data
                if user is None:
                    os._exit(1)
                complete, fault = user.receive()
                if not complete:
                    continue
                ended = perf_counter()
                if first <= ended < last:
                    if fault is None:
                        totals.latency.add(ended - user.sent_at)
                    else:
                        totals.faults[fault] += 1
                if fault == LOST:
                    selector.unregister(user.connection)
                    user.reconnect()
                    selector.register(user.connection, selectors.EVENT_READ, user)
                user.send()
        # a request that was not answered in the whole measured time is an error
        for user in users:
            if user.sent_at < first:
                totals.faults[f"no answer in {plan.duration:g} s"] += 1
    return totals, (_cpu_seconds() - (cpu_at_first or 0.0)) / plan.duration


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """The first argument holds options of loadtest as JSON, by field; the second names the report."""
    options = json.loads(sys.argv[1])
    try:
        result = run(parse_plan(options.pop("url"), options))
    except (LoadTestError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    Path(sys.argv[2]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
