"""`/metrics`: what all workers have counted, in the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from service.gates.drift import DriftReport
from service.registry.registry import ModelRegistry
from service.repository.deployment import NOT_CHOSEN, UNLOADED
from service.telemetry.counters import ROW_BOUNDS, TIME_BOUNDS_NS, Snapshot, merge
from service.version import VERSION

NANOSECONDS = 1e9
MODEL_LABELS = ("model", "version")
STATES = ("READY", "LOADING", "UNAVAILABLE")

DriftReports = Sequence[tuple[str, int, DriftReport]]


def collect_metrics(snapshots: Iterable[Mapping[str, Any]], shelf: ModelRegistry) -> MetricsCollector:
    """What there is to tell, from the snapshots of all workers and this worker's shelf."""
    snapshots = list(snapshots)
    return MetricsCollector(
        merge(snapshot["meter"] for snapshot in snapshots),
        list(shelf.index()),
        drift_reports(snapshots, shelf),
    )


def metrics_response(families: MetricsCollector) -> Response:
    """The answer to a scrape. Of many models it takes a tenth of a second: call it in a thread."""
    return Response(generate_latest(families), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def drift_reports(snapshots: Sequence[Mapping[str, Any]], shelf: ModelRegistry) -> DriftReports:
    """How far each model's gates have moved, over all workers."""
    found = []
    for model in shelf.models:
        if model.drift is not None:
            seen = [snapshot["drift"].get(model.name, {}).get(str(model.version)) for snapshot in snapshots]
            report = model.drift.merge(one for one in seen if one is not None)
            found.append((model.name, model.version, report))
    return found


class MetricsCollector(Collector):
    """Every metric there is, of merged counts, the repository's index, and drift."""

    def __init__(
        self, merged: Snapshot, index: Iterable[Mapping[str, Any]] = (), drift: DriftReports = ()
    ) -> None:
        self._merged = merged
        self._index = index
        self._drift = drift
        self._models: list[tuple[tuple[str, str], Snapshot]] = [
            ((name, version), counts)
            for name, versions in merged["models"].items()
            for version, counts in versions.items()
        ]

    def collect(self) -> Iterator[Metric]:
        yield from self._process()
        yield from self._http()
        yield from self._traffic()
        yield from self._times()
        yield from self._states()
        yield from self._drifts()

    def _process(self) -> Iterator[Metric]:
        yield InfoMetricFamily("turnpike_build", "Which turnpike this is.", {"version": VERSION})
        yield _gauge("turnpike_start_time_seconds", "When the first worker began.", self._merged["started"])
        yield _gauge("turnpike_workers", "Workers that are alive.", self._merged["workers"])

    def _http(self) -> Iterator[Metric]:
        yield _gauge("turnpike_http_requests_in_flight", "Requests under way.", self._merged["in_flight"])
        requests = CounterMetricFamily(
            "turnpike_http_requests", "Requests answered.", labels=("route", "method", "status")
        )
        for route, methods in self._merged["answered"].items():
            for method, statuses in methods.items():
                for status, count in statuses.items():
                    requests.add_metric((route, method, status), count)
        yield requests
        seconds = HistogramMetricFamily(
            "turnpike_http_request_seconds",
            "From a request's headers to its answer's last byte.",
            labels=("route",),
        )
        for route, histogram in self._merged["seconds"].items():
            _add_seconds(seconds, (route,), histogram)
        yield seconds
        refused = CounterMetricFamily(
            "turnpike_requests_refused", "Requests answered with an error, by reason.", labels=("reason",)
        )
        for reason, count in self._merged["refused"].items():
            refused.add_metric((reason,), count)
        yield refused

    def _traffic(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "turnpike_model_requests", "Requests a model answered.", labels=MODEL_LABELS
        )
        failures = CounterMetricFamily(
            "turnpike_model_failures",
            "Requests a model did not answer, by reason.",
            labels=(*MODEL_LABELS, "reason"),
        )
        rows = CounterMetricFamily("turnpike_model_rows", "Rows a model answered.", labels=MODEL_LABELS)
        depth = GaugeMetricFamily(
            "turnpike_model_queue_depth", "Requests that wait for their run.", labels=MODEL_LABELS
        )
        batch = HistogramMetricFamily(
            "turnpike_model_batch_rows", "Rows that ran together.", labels=MODEL_LABELS
        )
        for labels, counts in self._models:
            requests.add_metric(labels, sum(counts["seconds"]["counts"]))
            for reason, (count, _) in counts["failed"].items():
                failures.add_metric((*labels, reason), count)
            rows.add_metric(labels, counts["rows"])
            depth.add_metric(labels, counts["waiting"])
            _add(batch, labels, counts["batch"], ROW_BOUNDS, 1)
        yield from (requests, failures, rows, depth, batch)

    def _times(self) -> Iterator[Metric]:
        for key, what in (
            ("seconds", "From a request's headers to the bytes of its answer."),
            ("queue", "A request's wait for its run."),
            ("run", "One run of the model, of one request or of several."),
        ):
            name = "turnpike_model_request_seconds" if key == "seconds" else f"turnpike_model_{key}_seconds"
            family = HistogramMetricFamily(name, what, labels=MODEL_LABELS)
            for labels, counts in self._models:
                _add_seconds(family, labels, counts[key])
            yield family

    def _states(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "turnpike_model_state", "1 for the state that a version is in.", labels=(*MODEL_LABELS, "state")
        )
        failed = GaugeMetricFamily(
            "turnpike_model_load_failed",
            "1 where a file is not served, and why.",
            labels=(*MODEL_LABELS, "reason"),
        )
        found: dict[tuple[str, str], str] = {}
        reasons: set[tuple[str, str, str]] = set()
        for entry in self._index:
            key = (entry["name"], entry["version"])
            # a version may be served still while the file that was to replace it could not be loaded
            if found.get(key) != "READY":
                found[key] = entry["state"]
            if (
                entry["reason"]
                and entry["version"]
                and not entry["reason"].startswith((UNLOADED, NOT_CHOSEN))
            ):
                reasons.add((*key, entry["reason"]))
        for key, current in found.items():
            for one in STATES:
                state.add_metric((*key, one), int(one == current))
        for labels in sorted(reasons):
            failed.add_metric(labels, 1)
        yield state
        yield failed

    def _drifts(self) -> Iterator[Metric]:
        psi = GaugeMetricFamily(
            "turnpike_gate_drift_psi",
            "Population stability index of a gate's values, live against the profile of its export.",
            labels=(*MODEL_LABELS, "gate"),
        )
        rows = GaugeMetricFamily(
            "turnpike_gate_drift_rows", "Rows that the index is told from.", labels=MODEL_LABELS
        )
        for name, version, report in self._drift:
            rows.add_metric((name, str(version)), report.rows)
            for layer in report.layers:
                if layer.psi is not None:
                    psi.add_metric((name, str(version), layer.gate), layer.psi)
        yield psi
        yield rows


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value)


def _add_seconds(family: HistogramMetricFamily, labels: Sequence[str], histogram: Snapshot) -> None:
    _add(family, labels, histogram, TIME_BOUNDS_NS, NANOSECONDS)


def _add(
    family: HistogramMetricFamily,
    labels: Sequence[str],
    histogram: Snapshot,
    bounds: Sequence[int],
    unit: float,
) -> None:
    names = [*(str(bound / unit) for bound in bounds), "+Inf"]
    family.add_metric(
        labels, list(zip(names, accumulate(histogram["counts"]), strict=True)), histogram["total"] / unit
    )
