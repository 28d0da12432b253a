"""The content of `loadtest.json`: all results as plain data, from which the page is rendered, too.

`loadtest/README.md` describes the keys. Times are in seconds; NaN and infinity are None.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from turnpike.loadtest.ledger import OutcomeTotals, PeriodSummary
from turnpike.loadtest.measure.buckets import Buckets
from turnpike.loadtest.measure.record import Capacity, RateStep, Record, WrkLoad
from turnpike.loadtest.measure.summary import failures
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.report.sentences import capacity_sentence
from turnpike.loadtest.report.series import time_series, time_table
from turnpike.loadtest.slo import PERCENTILES, Limit
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import TensorSpec

FORMAT = 1
# Shares of the distribution curve. Above the last, points come closer and closer to 1, this many for each
# tenfold rarer share, as far as there are enough requests.
SHARES = (0.0, 0.25, 0.5, 0.75, 0.8, 0.85)
POINTS_PER_DECADE = 12

ReportDocument = dict[str, Any]


def build_document(record: Record) -> ReportDocument:
    """Everything that the page shows; secrets such as the API key are left out."""
    plan, summary = record.plan, record.summary()
    kinds = record.ledger.kinds()
    report: ReportDocument = {
        "format": FORMAT,
        "begun": _iso_time(record.begun),
        "ended": _iso_time(record.ended),
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
        "total": summary_figures("all", summary),
        "kinds": [summary_figures(kind, record.summary(kind)) for kind in kinds],
        "late": _late(summary.totals),
        "busy": record.busy,
        "distribution": latency_distribution(summary),
        "distributions": {kind: latency_distribution(record.summary(kind)) for kind in kinds},
        "server": _server(record),
        "capacity": _capacity(record),
        "drift": _drift(record),
        "stretches": time_table(record),
        "series": time_series(record),
    }
    return {key: without_nan(value) for key, value in report.items()}


def summary_figures(kind: str, summary: PeriodSummary) -> ReportDocument:
    """The results of one kind of request: a row of the table."""
    return {
        "kind": kind,
        "requests": summary.requests,
        "good": summary.good,
        "rate": summary.rate,
        "rows_rate": summary.totals.rows / summary.seconds if summary.seconds else 0.0,
        "mean": summary.totals.latency.mean,
        **{name: summary.percentile(share) for name, share in PERCENTILES.items()},
        "bad": summary.bad,
        "errors": summary.errors,
        "faults": dict(summary.totals.faults.most_common()),
    }


def latency_distribution(summary: PeriodSummary) -> list[list[float]]:
    """Pairs of a share of the good answers and the latency that it did not exceed."""
    if not summary.good:
        return []
    decades = math.log10(max(10, summary.good))
    steps = range(POINTS_PER_DECADE, math.floor(decades * POINTS_PER_DECADE) + 1)
    shares = [*SHARES, *(1 - 10 ** (-step / POINTS_PER_DECADE) for step in steps), 1.0]
    return [[share, summary.percentile(share)] for share in shares]


def without_nan(value: Any) -> Any:
    """The same data with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value


def _iso_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _target(target: Target) -> ReportDocument:
    return {
        "url": target.url,
        "server": target.server,
        "server_version": target.server_version,
        "model": target.model,
        "version": target.version,
        "inputs": [_tensor(spec) for spec in target.inputs],
        "outputs": [_tensor(spec) for spec in target.outputs],
    }


def _tensor(spec: TensorSpec) -> ReportDocument:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _load(plan: LoadPlan) -> ReportDocument:
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
        "processes": plan.process_count,
        "samples": plan.samples,
        "seed": plan.seed,
        "tolerance": plan.tolerance,
        "timeout": plan.timeout,
        "own_rows": plan.data is not None,
    }


def _verdict(record: Record, summary: PeriodSummary) -> ReportDocument:
    missed = record.missed_limits
    limits = record.plan.slo.limits if record.plan.slo else ()
    return {
        "slo": str(record.plan.slo) if record.plan.slo else None,
        "kept": not missed if limits else None,
        "limits": [_limit(limit, summary, limit not in missed) for limit in limits],
        "failures": list(failures(record)),
        "wrong_answer": record.wrong_answer,
    }


def _limit(limit: Limit, summary: PeriodSummary, kept: bool) -> ReportDocument:
    value = limit.value(summary) if summary.requests else None
    return {
        "words": limit.text,
        "measure": limit.measure,
        "bound": limit.bound,
        "value": value,
        "kept": kept,
    }


def _late(totals: OutcomeTotals) -> ReportDocument:
    return {name: totals.late.percentile(share) for name, share in PERCENTILES.items()}


def _server(record: Record) -> ReportDocument | None:
    """The server's own metrics over the seconds that count."""
    scrapes = [
        scrape for scrape in record.scrapes if record.first <= scrape.at - scrape.seconds / 2 < record.last
    ]
    if not scrapes:
        return None
    merged: dict[str, Buckets] = {
        name: Buckets.merged(getattr(scrape, name) for scrape in scrapes)
        for name in ("request", "queue", "run", "rows")
    }
    return {
        **{name: _bucket_figures(merged[name]) for name in ("request", "queue", "run")},
        "rows": {**_bucket_figures(merged["rows"]), "buckets": _bucket_pairs(merged["rows"])},
        "refused": sum(scrape.refused for scrape in scrapes),
        "depth": max(scrape.depth for scrape in scrapes),
        "workers": scrapes[-1].workers,
    }


def _bucket_figures(buckets: Buckets) -> ReportDocument:
    shares = {name: share for name, share in PERCENTILES.items() if share < 1}
    return {
        "count": buckets.count,
        "mean": buckets.mean,
        **{name: buckets.percentile(share) for name, share in shares.items()},
    }


def _bucket_pairs(buckets: Buckets) -> list[list[float]]:
    return [list(pair) for pair in zip(buckets.bounds, buckets.counts, strict=True)]


def capacity_figures(capacity: Capacity | None) -> ReportDocument:
    """The result of a search; None if it was stopped before its end."""
    return {
        "done": capacity is not None,
        "rate": capacity.rate if capacity else None,
        "limited_by": capacity.limited_by if capacity else None,
        "wrk": _wrk(capacity.by_wrk) if capacity and capacity.by_wrk else None,
    }


def _capacity(record: Record) -> ReportDocument | None:
    if not record.plan.find_capacity:
        return None
    result = capacity_figures(record.capacity)
    return {
        **result,
        "sentence": capacity_sentence(result),
        "steps": [_step(step, record) for step in record.steps],
    }


def _wrk(load: WrkLoad) -> ReportDocument:
    return {
        "connections": load.connections,
        "seconds": load.summary.seconds,
        **summary_figures("all", load.summary),
        "kept": load.kept,
    }


def _step(step: RateStep, record: Record) -> ReportDocument:
    return {
        "from": step.begin - record.begun,
        "seconds": step.summary.seconds,
        "due_rate": step.rate,
        **summary_figures("all", step.summary),
        "late_p99": step.late_p99,
        "starved": step.starved,
        # a change of this public key would break readers of reports
        "held": step.kept,
        "limited": step.generator_limited,
    }


def _drift(record: Record) -> ReportDocument | None:
    """The results of a soak test: those of the first quarter of the time, and of the last."""
    quarter = (record.last - record.first) // 4
    if record.plan.shape != "soak" or not quarter:
        return None
    first = record.ledger.summary(record.first, record.first + quarter)
    last = record.ledger.summary(record.last - quarter, record.last)
    return {
        "seconds": quarter,
        "first": summary_figures("first", first),
        "last": summary_figures("last", last),
    }
