"""Whether a load test counts as passed."""

from __future__ import annotations

from loadtest.measure.record import Record
from loadtest.slo import ERRORS

WRONG = "wrong: "


def failures(record: Record) -> tuple[str, ...]:
    """Why it does not, in sentences; none when it does."""
    summary = record.summary()
    wrong = sum(count for fault, count in summary.cell.faults.items() if fault.startswith(WRONG))
    # what was ended before anything counted has missed nothing
    missed = record.missed if summary.requests or not record.interrupted else ()
    found = [f"the SLO was missed: {limit.words}" for limit in missed]
    if record.capacity and record.capacity.rate is None:
        found.append(f"no rate kept {record.plan.slo}")
    if wrong:
        found.append(f"wrong answers: {wrong:,} of {summary.requests:,}")
    if not (summary.requests or record.interrupted):
        found.append("no request was due after the warm-up")
    elif not (summary.good or record.interrupted):
        found.append("no answer was good")
    elif summary.requests and not (wrong or record.plan.slo or ERRORS.holds(summary)):
        found.append(f"errors: {summary.bad:,} of {summary.requests:,}, and no --slo that allows so many")
    return tuple(found)
