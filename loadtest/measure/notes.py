"""What the reader of the figures should know of how they were got."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.ledger import Summary
from loadtest.plan import WIRES, Plan
from loadtest.workload.payloads import obstacle
from loadtest.workload.workload import Load

# a process that computes for more of its time than this sends late, and reads answers late
BUSY = 0.85
LATE = 0.010
MORE = "Use more --processes, or generate the load on another machine."


def notes(plan: Plan, load: Load, summary: Summary, busy: Sequence[float]) -> tuple[str, ...]:
    """Sentences for people; `busy` is the part of a processor that sending processes used, each second."""
    return (*_left_out(plan, load), *_alike(load), *_busy(busy), *_late(plan, summary))


def _left_out(plan: Plan, load: Load) -> list[str]:
    if plan.wire != "mixed":
        return []
    absent = [wire for wire in WIRES if wire != "mixed" and obstacle(load.target, wire)]
    return (
        [f"The mix goes without {', '.join(absent)}, which this model or server does not have."]
        if absent
        else []
    )


def _alike(load: Load) -> list[str]:
    return [
        f"All requests of the kind {kind!r} have the same answer: one mistaken for another would not be seen."
        for kind in load.judge.alike
    ]


def _busy(busy: Sequence[float]) -> list[str]:
    most = sorted(busy)[int(len(busy) * 0.8)] if busy else 0.0
    if most <= BUSY:
        return []
    return [
        f"A sending process was busy for {min(most, 1):.0%} of its time: latencies hold waits of its own. "
        f"{MORE}"
    ]


def _late(plan: Plan, summary: Summary) -> list[str]:
    late = summary.cell.late.percentile(0.99)
    if not plan.open_loop or not late > LATE:
        return []
    return [
        f"One request in a hundred left {late * 1e3:.0f} ms late or more, which their latencies hold: the "
        f"generator could not keep the schedule. {MORE}"
    ]
