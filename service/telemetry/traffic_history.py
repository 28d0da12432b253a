"""The traffic of the last minutes: a moment every few seconds, from the counters of all workers.

A moment has the figures of all requests between two snapshots. The page shows them; a reload loses nothing,
because the supervisor keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from turnpike.service.telemetry.counters import ROW_BOUNDS, TIME_BOUNDS_NS, Snapshot

MOMENT_SECONDS = 3.0
HISTORY_SECONDS = 15 * 60
NANOSECONDS = 1e9


class Figures(NamedTuple):
    """Figures of one version of a model, or of all together, over the seconds before a moment.

    Times are in seconds. A figure is None if no request or run tells it.
    """

    requests_per_s: float = 0.0
    rows_per_s: float = 0.0
    p50_s: float | None = None
    p99_s: float | None = None
    mean_s: float | None = None
    rows_per_run: float | None = None
    # requests in the queue at the moment
    waiting: int = 0
    queue_p99_s: float | None = None
    run_p50_s: float | None = None
    # error responses, by reason
    failed_per_s: dict[str, float] | None = None


class Moment(NamedTuple):
    """The figures at one time. Models without any traffic are left out."""

    # seconds since the service started
    at: float
    workers: int
    total: Figures
    models: dict[str, Figures]

    def to_json(self) -> dict[str, Any]:
        """The moment as dicts and numbers."""
        models = {name: figures._asdict() for name, figures in self.models.items()}
        return self._asdict() | {"total": self.total._asdict(), "models": models}


class TrafficHistory:
    """The moments of the last minutes."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=int(HISTORY_SECONDS / MOMENT_SECONDS))
        self._last: tuple[float, Snapshot] | None = None

    def record(self, at: float, counters: Snapshot) -> None:
        """Add the moment between the last call and this one; the first call only sets the starting point.

        Args:
            at: Seconds since the service started.
            counters: The merged counters of all workers.
        """
        last, self._last = self._last, (at, counters)
        if last is not None:
            before_at, before = last
            self._moments.append(_moment(at, at - before_at, before, counters))

    def to_json(self, after: float) -> dict[str, Any]:
        """The moments later than `after`, and how many requests were refused since the service started."""
        counters = self._last[1] if self._last else {"started": 0.0, "refused": {}, "models": {}}
        return {
            "started": counters["started"],
            "moment_seconds": MOMENT_SECONDS,
            "history_seconds": HISTORY_SECONDS,
            "moments": [moment.to_json() for moment in self._moments if moment.at > after],
            "refused": counters["refused"],
            "failed": {
                name: {reason: count for reason, (count, _) in counts["failed"].items()}
                for name, counts in _versions(counters)
                if counts["failed"]
            },
        }


def _moment(at: float, seconds: float, before: Snapshot, after: Snapshot) -> Moment:
    """The figures between two snapshots."""
    known = dict(_versions(before))
    changes = {name: _change(known.get(name), counts) for name, counts in _versions(after)}
    refused = _increases(before["refused"], after["refused"])
    return Moment(
        at=round(at, 3),
        workers=after["workers"],
        total=_figures(list(changes.values()), seconds)._replace(failed_per_s=_rates(refused, seconds)),
        models={
            name: _figures([change], seconds)
            for name, change in changes.items()
            if sum(change["seconds"]["counts"]) or change["failed"] or change["waiting"]
        },
    )


def _versions(counters: Snapshot) -> Iterable[tuple[str, Snapshot]]:
    """The counts of each version of each model, by "name/version"."""
    for name, versions in counters["models"].items():
        for version, counts in versions.items():
            yield f"{name}/{version}", counts


def _change(before: Snapshot | None, after: Snapshot) -> Snapshot:
    """What was counted for a version between two snapshots."""
    failed = {reason: count for reason, (count, _) in after["failed"].items()}
    if before is None:
        return after | {"failed": failed}
    earlier = {reason: count for reason, (count, _) in before["failed"].items()}
    histograms = {
        key: {
            "counts": [
                now - then for then, now in zip(before[key]["counts"], after[key]["counts"], strict=True)
            ],
            "total": after[key]["total"] - before[key]["total"],
        }
        for key in ("seconds", "queue", "run", "batch")
    }
    return histograms | {
        "rows": after["rows"] - before["rows"],
        "waiting": after["waiting"],
        "failed": _increases(earlier, failed),
    }


def _increases(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How far each count grew, without those that did not."""
    growth = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    return {reason: count for reason, count in growth.items() if count}


def _figures(changes: Sequence[Snapshot], seconds: float) -> Figures:
    """The figures of some versions together."""
    times, queue, run, batch = (
        _sum_of_histograms([change[key] for change in changes], len(bounds) + 1)
        for key, bounds in (
            ("seconds", TIME_BOUNDS_NS),
            ("queue", TIME_BOUNDS_NS),
            ("run", TIME_BOUNDS_NS),
            ("batch", ROW_BOUNDS),
        )
    )
    failed: dict[str, int] = {}
    for change in changes:
        for reason, count in change["failed"].items():
            failed[reason] = failed.get(reason, 0) + count
    return Figures(
        requests_per_s=_short(sum(times["counts"]) / seconds),
        rows_per_s=_short(sum(change["rows"] for change in changes) / seconds),
        p50_s=_seconds(quantile(times["counts"], TIME_BOUNDS_NS, 0.5)),
        p99_s=_seconds(quantile(times["counts"], TIME_BOUNDS_NS, 0.99)),
        mean_s=_seconds(_mean(times)),
        rows_per_run=_mean(batch),
        waiting=sum(change["waiting"] for change in changes),
        queue_p99_s=_seconds(quantile(queue["counts"], TIME_BOUNDS_NS, 0.99)),
        run_p50_s=_seconds(quantile(run["counts"], TIME_BOUNDS_NS, 0.5)),
        failed_per_s=_rates(failed, seconds),
    )


def _sum_of_histograms(histograms: Sequence[Snapshot], buckets: int) -> Snapshot:
    columns = zip(*(histogram["counts"] for histogram in histograms), strict=True)
    return {
        "counts": [sum(column) for column in columns] or [0] * buckets,
        "total": sum(histogram["total"] for histogram in histograms),
    }


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The quantile for a share, or None without values.

    Values are taken to be spread evenly within a bucket. A quantile above the last bound is that bound.

    Args:
        counts: The number of values in each bucket; the last one has no bound.
        bounds: The upper bounds of the others.
        share: From 0 to 1.
    """
    rank = share * sum(counts)
    below = 0
    for count, low, high in zip(counts, (0.0, *bounds), bounds, strict=False):
        if count and below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below += count
    return bounds[-1] if rank else None


def _mean(histogram: Snapshot) -> float | None:
    values = sum(histogram["counts"])
    return _short(histogram["total"] / values) if values else None


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else _short(ns / NANOSECONDS)


def _rates(counts: dict[str, int], seconds: float) -> dict[str, float]:
    return {reason: _short(count / seconds) for reason, count in counts.items()}


def _short(value: float) -> float:
    """The number with the digits that a chart can show."""
    return float(f"{value:.4g}")
