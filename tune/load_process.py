"""Users of a server, in processes that do nothing else: `python -m tune.load_process ASKED FILE`.

The requests and what judges the answers are those of `turnpike loadtest`. Its users take more of a CPU for a
request than a small model takes to answer it, so that on one machine they are what is measured; these
take less.
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

from loadtest.cli.options import plan as read
from loadtest.errors import LoadTestError
from loadtest.generate.sender import order, shots
from loadtest.ledger import Cell, Summary
from loadtest.plan import Plan
from loadtest.slo import ERRORS, Slo
from loadtest.workload.workload import Load
from tune.load_client import LOST, User

# of a processor; a process that takes more of it can hardly send more
BUSY = 0.85
UNSENT = (
    "The processes that send were busy for nearly all of their time: the server may do more than was seen, "
    "and more workers may be of use with users on other machines."
)
# seconds between looks whether the one that leads is still there
LOOK = 0.5


def run(plan: Plan) -> dict[str, Any]:
    """Send for as long as the plan says, and tell what came of it."""
    load = Load(plan)
    load.of(plan.wire)
    # it is closed when this process ends, however it ends
    lifeline, mouth = os.pipe()
    shares = [
        plan.users * (at + 1) // plan.processes - plan.users * at // plan.processes
        for at in range(plan.processes)
    ]
    ears = []
    for number, users in enumerate(shares):
        ear, told = os.pipe()
        if not os.fork():
            os.close(mouth)
            _work(plan, load, users, f"worker {number}", lifeline, told)
        os.close(told)
        ears.append(ear)
    total, busy = Cell(), 0.0
    for ear in ears:
        with os.fdopen(ear, "rb") as pipe:
            heard = pipe.read()
        if not heard:
            raise LoadTestError("a process that sends ended before its time")
        cell, share = json.loads(heard)
        total.merge(Cell.heard(cell))
        busy = max(busy, share)
    return report(plan, Summary(plan.duration, total), busy)


def report(plan: Plan, summary: Summary, busy: float) -> dict[str, Any]:
    """The figures, as a report of loadtest has them."""
    slo = plan.slo or Slo((ERRORS,))
    wrong = sum(count for fault, count in summary.cell.faults.items() if fault.startswith("wrong"))
    failures = [f"the SLO was missed: {limit.words}" for limit in slo.missed(summary)]
    known = {name: summary.percentile(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {
        "total": {"rate": summary.rate}
        | {name: value if math.isfinite(value) else None for name, value in known.items()},
        "load": {"users": plan.users},
        "verdict": {"failures": [*failures, *[f"wrong answers: {wrong:,}"] * bool(wrong)]},
        "notes": [UNSENT] * (busy > BUSY),
    }


def _work(plan: Plan, load: Load, users: int, name: str, lifeline: int, told: int) -> NoReturn:
    """The life of a process that sends, which ends here."""
    try:
        gc.collect()
        gc.freeze()
        cell, busy = rush(plan, load, users, name, lifeline)
        os.write(told, json.dumps([cell.told(), busy]).encode())
    finally:
        os._exit(0)


def rush(plan: Plan, load: Load, count: int, name: str, lifeline: int) -> tuple[Cell, float]:
    """So many users until the time is over: what counts, and the part of a CPU that it took."""
    cell = Cell()
    loaded = shots(plan, load.of(plan.wire))
    right: dict[Any, bytes] = {}
    users = [User(plan.url, order(loaded, f"{name} {number}"), load.judge, right) for number in range(count)]
    first = perf_counter() + plan.warmup
    last = first + plan.duration
    spent: float | None = None
    with selectors.DefaultSelector() as ready:
        ready.register(lifeline, selectors.EVENT_READ)
        for user in users:
            ready.register(user.connection, selectors.EVENT_READ, user)
            user.send()
        while (now := perf_counter()) < last:
            if spent is None and now >= first:
                spent = _cpu()
            for key, _ in ready.select(min(LOOK, last - now)):
                user = key.data
                if user is None:
                    os._exit(1)
                whole, fault = user.hear()
                if not whole:
                    continue
                ended = perf_counter()
                if first <= ended < last:
                    if fault is None:
                        cell.latency.add(ended - user.begun)
                    else:
                        cell.faults[fault] += 1
                if fault == LOST:
                    ready.unregister(user.connection)
                    user.again()
                    ready.register(user.connection, selectors.EVENT_READ, user)
                user.send()
        for user in users:
            if user.begun < first:
                cell.faults[f"no answer in {plan.duration:g} s"] += 1
    return cell, (_cpu() - (spent or 0.0)) / plan.duration


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """What is asked, as words of loadtest's options by field; the figures go into the file."""
    asked = json.loads(sys.argv[1])
    try:
        found = run(read(asked.pop("url"), asked))
    except (LoadTestError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
