"""Whether a load test counts as passed."""

from __future__ import annotations

from loadtest.record import Record

WRONG = "wrong: "


def failures(record: Record) -> tuple[str, ...]:
    """Why it does not, in sentences; none when it does."""
    summary = record.summary()
    wrong = sum(count for fault, count in summary.cell.faults.items() if fault.startswith(WRONG))
    found = [f"the SLO was missed: {limit.words}" for limit in record.missed]
    if record.capacity and record.capacity.rate is None:
        found.append(f"no rate kept {record.plan.slo}")
    if wrong:
        found.append(f"wrong answers: {wrong:,} of {summary.requests:,}")
    if not (summary.good or record.interrupted):
        found.append("no answer was good")
    return tuple(found)
