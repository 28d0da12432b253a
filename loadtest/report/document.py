"""All figures of a load test as one plain document: what `report.json` holds and the page is drawn from.

The keys are described in `loadtest/README.md`. Times are seconds; what is no number is None.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from loadtest.ledger import Cell, Summary
from loadtest.measure.buckets import Buckets
from loadtest.measure.record import Record, Step
from loadtest.measure.verdict import failures
from loadtest.plan import Plan
from loadtest.report.series import series, stretches
from loadtest.slo import PERCENTILES, Limit
from loadtest.workload.target import Target
from loadtest.workload.tensors import Tensor

FORMAT = 1
# of the curve: ever closer to all, as far as there are requests to tell it by
SHARES = (0.0, 0.25, 0.5, 0.75, 0.8, 0.85)
PER_DECADE = 12

Document = dict[str, Any]


def document(record: Record) -> Document:
    """Everything that the page shows, without what is secret."""
    plan, summary = record.plan, record.summary()
    found: Document = {
        "format": FORMAT,
        "begun": _moment(record.begun),
        "ended": _moment(record.ended),
        "seconds": record.ended - record.begun,
        "interrupted": record.interrupted,
        "counted": {"from": record.first - record.begun, "seconds": summary.seconds},
        "target": _target(record.target),
        "load": _load(plan),
        "machine": {
            "cpus": record.machine.cpus,
            "python": record.machine.python,
            "platform": record.machine.platform,
            "locust": record.machine.locust,
        },
        "verdict": _verdict(record, summary),
        "notes": list(record.notes),
        "total": figures("all", summary),
        "kinds": [figures(kind, record.summary(kind)) for kind in record.ledger.kinds()],
        "late": _late(summary.cell),
        "distribution": distribution(summary),
        "distributions": {kind: distribution(record.summary(kind)) for kind in record.ledger.kinds()},
        "server": _server(record),
        "capacity": _capacity(record),
        "drift": _drift(record),
        "stretches": stretches(record),
        "series": series(record),
    }
    return {key: known(value) for key, value in found.items()}


def figures(kind: str, summary: Summary) -> Document:
    """A line of the table: what became of the requests of a kind."""
    return {
        "kind": kind,
        "requests": summary.requests,
        "good": summary.good,
        "rate": summary.rate,
        "rows_rate": summary.cell.rows / summary.seconds if summary.seconds else 0.0,
        "mean": summary.cell.latency.mean,
        **{name: summary.percentile(share) for name, share in PERCENTILES.items()},
        "bad": summary.bad,
        "errors": summary.errors,
        "faults": dict(summary.cell.faults.most_common()),
    }


def distribution(summary: Summary) -> list[list[float]]:
    """Shares of the good answers, each with the latency that it did not exceed."""
    if not summary.good:
        return []
    most = math.log10(max(10, summary.good))
    steps = range(PER_DECADE, math.floor(most * PER_DECADE) + 1)
    shares = [*SHARES, *(1 - 10 ** (-step / PER_DECADE) for step in steps), 1.0]
    return [[share, summary.percentile(share)] for share in shares]


def known(value: Any) -> Any:
    """The same with None for every number that is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: known(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [known(one) for one in value]
    return value


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _target(target: Target) -> Document:
    return {
        "url": target.url,
        "server": target.server,
        "server_version": target.server_version,
        "model": target.model,
        "version": target.version,
        "inputs": [_tensor(tensor) for tensor in target.inputs],
        "outputs": [_tensor(tensor) for tensor in target.outputs],
    }


def _tensor(tensor: Tensor) -> Document:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _load(plan: Plan) -> Document:
    return {
        "loop": "open" if plan.open_loop else "closed",
        "wire": plan.wire,
        "rows": list(plan.rows),
        "shape": plan.shape,
        "users": None if plan.open_loop else plan.users,
        "rate": plan.rate,
        "find_capacity": plan.find_capacity,
        "duration": None if plan.find_capacity else plan.duration,
        "step_seconds": plan.step_seconds if plan.find_capacity else None,
        "warmup": plan.warmup,
        "processes": plan.processes,
        "samples": plan.samples,
        "seed": plan.seed,
        "tolerance": plan.tolerance,
        "timeout": plan.timeout,
        "own_rows": plan.data is not None,
    }


def _verdict(record: Record, summary: Summary) -> Document:
    limits = record.plan.slo.limits if record.plan.slo else ()
    return {
        "slo": str(record.plan.slo) if record.plan.slo else None,
        "kept": not record.missed if limits else None,
        "limits": [_limit(limit, summary, limit not in record.missed) for limit in limits],
        "failures": list(failures(record)),
        "wrong_answer": record.wrong,
    }


def _limit(limit: Limit, summary: Summary, kept: bool) -> Document:
    value = limit.value(summary) if summary.requests else None
    return {
        "words": limit.words,
        "measure": limit.measure,
        "bound": limit.bound,
        "value": value,
        "kept": kept,
    }


def _late(cell: Cell) -> Document:
    return {name: cell.late.percentile(share) for name, share in PERCENTILES.items()}


def _server(record: Record) -> Document | None:
    """The server's own times over the seconds that count."""
    scrapes = [one for one in record.scrapes if record.first <= one.at - one.seconds / 2 < record.last]
    if not scrapes:
        return None
    parts: dict[str, Buckets] = {
        name: Buckets.added(getattr(one, name) for one in scrapes)
        for name in ("request", "queue", "run", "rows")
    }
    return {
        **{name: _bucket_figures(parts[name]) for name in ("request", "queue", "run")},
        "rows": {**_bucket_figures(parts["rows"]), "buckets": _pairs(parts["rows"])},
        "refused": sum(one.refused for one in scrapes),
        "depth": max(one.depth for one in scrapes),
        "workers": scrapes[-1].workers,
    }


def _bucket_figures(buckets: Buckets) -> Document:
    shares = {name: share for name, share in PERCENTILES.items() if share < 1}
    return {
        "count": buckets.count,
        "mean": buckets.mean,
        **{name: buckets.percentile(share) for name, share in shares.items()},
    }


def _pairs(buckets: Buckets) -> list[list[float]]:
    return [list(pair) for pair in zip(buckets.bounds, buckets.counts, strict=True)]


def _capacity(record: Record) -> Document | None:
    if not record.plan.find_capacity:
        return None
    found = record.capacity
    return {
        "done": found is not None,
        "rate": found.rate if found else None,
        "limited_by": found.limited_by if found else None,
        "steps": [_step(step, record) for step in record.steps],
    }


def _step(step: Step, record: Record) -> Document:
    return {
        "from": step.begin - record.begun,
        "seconds": step.summary.seconds,
        "due_rate": step.rate,
        **figures("all", step.summary),
        "late_p99": step.late_p99,
        "held": step.held,
        "limited": step.limited,
    }


def _drift(record: Record) -> Document | None:
    """Of a soak: the first quarter of the time that counts beside the last."""
    quarter = (record.last - record.first) // 4
    if record.plan.shape != "soak" or not quarter:
        return None
    first = record.ledger.summary(record.first, record.first + quarter)
    last = record.ledger.summary(record.last - quarter, record.last)
    return {"seconds": quarter, "first": figures("first", first), "last": figures("last", last)}
