"""Summarizes a finished load test: its record, caveats for the reader, and whether it passed."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Any

from turnpike.common.cpus import affinity_cpus
from turnpike.loadtest.ledger import Ledger, PeriodSummary, now
from turnpike.loadtest.measure.record import Machine, Record
from turnpike.loadtest.measure.server_metrics import MetricsPoller
from turnpike.loadtest.plan import WIRES, LoadPlan
from turnpike.loadtest.slo import DEFAULT_ERROR_LIMIT
from turnpike.loadtest.workload.answer_check import WRONG_PREFIX
from turnpike.loadtest.workload.payloads import why_unsupported
from turnpike.loadtest.workload.workload import Workload

# share of a CPU; above it, a sending process is late to send and to read, so latencies are too long
MAX_BUSY = 0.85
# seconds: a p99 of lateness above this is noted
NOTED_LATE_SECONDS = 0.010
MORE_PROCESSES = "Use more --processes, or generate the load on another machine."


def make_record(
    plan: LoadPlan,
    workload: Workload,
    ledger: Ledger,
    poller: MetricsPoller | None,
    seconds: tuple[int, int],
    busy: Sequence[Sequence[float]] = (),
    **more: Any,
) -> Record:
    """The record of a test that ends now.

    Args:
        plan: What was done.
        workload: What was sent.
        ledger: All outcomes.
        poller: The server's metrics, if they were read.
        seconds: First second of the ledger that counts, and the one after the last.
        busy: For each sending process, the shares of a CPU that it used, second by second.
        more: Further fields of the record.
    """
    first, last = seconds
    busy_share = busiest_share(busy)
    summary = ledger.summary(first, last)
    return Record(
        plan=plan,
        target=workload.target,
        machine=this_machine(),
        ended=now(),
        first=first,
        last=last,
        ledger=ledger,
        missed_limits=plan.slo.missed(summary) if plan.slo else (),
        scrapes=tuple(poller.scrapes) if poller else (),
        busy=busy_share,
        notes=(*caveats(plan, workload, summary, busy_share), *(poller.caveats() if poller else ())),
        **more,
    )


def busiest_share(busy: Sequence[Sequence[float]]) -> float | None:
    """The share of a CPU that the busiest process used, as the 80th percentile of its seconds.

    A few busy seconds do no harm. If a fifth of them are busy, latencies are too long.
    """
    return max((sorted(shares)[int(len(shares) * 0.8)] for shares in busy if shares), default=None)


def this_machine() -> Machine:
    """This machine, without its name."""
    return Machine(
        cpus=affinity_cpus(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        # locust is not imported for this: importing it replaces parts of the standard library
        locust=importlib.metadata.version("locust"),
    )


def caveats(
    plan: LoadPlan, workload: Workload, summary: PeriodSummary, busy: float | None
) -> tuple[str, ...]:
    """Notes for the reader of the report; `busy` is the share of a CPU that the busiest process used."""
    return (
        *_missing_wires(plan, workload),
        *_equal_answers(workload),
        *_busy_senders(busy),
        *_late_requests(plan, summary),
    )


def _missing_wires(plan: LoadPlan, workload: Workload) -> list[str]:
    if plan.wire != "mixed":
        return []
    missing = [wire for wire in WIRES if wire != "mixed" and why_unsupported(workload.target, wire)]
    if not missing:
        return []
    return [f"The mix leaves out {', '.join(missing)}, which this model or server does not support."]


def _equal_answers(workload: Workload) -> list[str]:
    return [
        f"All requests of the kind {kind!r} have the same answer, so an answer to the wrong request would "
        "not be noticed."
        for kind in workload.checker.kinds_with_equal_answers
    ]


def _busy_senders(busy: float | None) -> list[str]:
    if busy is None or busy <= MAX_BUSY:
        return []
    return [
        f"In a fifth of its seconds or more, a sending process used {min(busy, 1):.0%} of a CPU or more, so "
        f"latencies include delays of the load generator. {MORE_PROCESSES}"
    ]


def _late_requests(plan: LoadPlan, summary: PeriodSummary) -> list[str]:
    late = summary.totals.late.percentile(0.99)
    if not plan.open_loop or not late > NOTED_LATE_SECONDS:
        return []
    return [
        f"One request in a hundred was sent {late * 1e3:.0f} ms late or more, and latencies include this "
        f"delay: the load generator could not keep the schedule. {MORE_PROCESSES}"
    ]


def failures(record: Record) -> tuple[str, ...]:
    """The reasons why a load test failed, as sentences; empty if it passed."""
    summary = record.summary()
    wrong = sum(count for fault, count in summary.totals.faults.items() if fault.startswith(WRONG_PREFIX))
    # a test that was stopped before anything was measured has missed no limit
    missed = record.missed_limits if summary.requests or not record.interrupted else ()
    reasons = [f"the SLO was missed: {limit.text}" for limit in missed]
    if record.capacity and record.capacity.rate is None:
        reasons.append(f"no rate kept {record.plan.slo}")
    if wrong:
        reasons.append(f"wrong answers: {wrong:,} of {summary.requests:,}")
    if not (summary.requests or record.interrupted):
        reasons.append("no request was due after the warm-up")
    elif not (summary.good or record.interrupted):
        reasons.append("no answer was good")
    elif summary.requests and not (wrong or record.plan.slo or DEFAULT_ERROR_LIMIT.is_kept(summary)):
        reasons.append(
            f"errors: {summary.bad:,} of {summary.requests:,}, and there is no --slo that allows this many"
        )
    return tuple(reasons)
