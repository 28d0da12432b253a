"""What a load test found, put together: a record of the ledger and of all that follows from it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

import locust

from loadtest.generate.sender import now
from loadtest.ledger import Ledger
from loadtest.measure.notes import notes
from loadtest.measure.observer import Observer
from loadtest.measure.record import Machine, Record
from loadtest.plan import Plan
from loadtest.workload.workload import Load


def result(
    plan: Plan,
    load: Load,
    ledger: Ledger,
    observer: Observer | None,
    seconds: tuple[int, int],
    busy: Sequence[float] = (),
    **more: Any,
) -> Record:
    """The record of a test that ends now; `seconds` are those of the ledger that count."""
    first, last = seconds
    summary = ledger.summary(first, last)
    return Record(
        plan=plan,
        target=load.target,
        machine=machine(),
        ended=now(),
        first=first,
        last=last,
        ledger=ledger,
        missed=plan.slo.missed(summary) if plan.slo else (),
        scrapes=tuple(observer.scrapes) if observer else (),
        notes=(*notes(plan, load, summary, busy), *(observer.notes() if observer else ())),
        **more,
    )


def machine() -> Machine:
    """This one, without its name."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        locust=locust.__version__,
    )
