"""`/metrics`: the counters of all workers in the text format of Prometheus."""

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

from turnpike.common.distribution import VERSION
from turnpike.service.gates.drift import DriftReport
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.deployment import NEW, NOT_CHOSEN, UNLOADED
from turnpike.service.requests.response import Response
from turnpike.service.telemetry.counters import ROW_BOUNDS, TIME_BOUNDS_NS, Snapshot, merge_snapshots

NANOSECONDS = 1e9
MODEL_LABELS = ("model", "version")
STATES = ("READY", "LOADING", "UNAVAILABLE")

DriftReports = Sequence[tuple[str, int, DriftReport]]


def collect_metrics(snapshots: Iterable[Mapping[str, Any]], registry: ModelRegistry) -> MetricsCollector:
    """The metrics from the snapshots of all workers and the models of this one."""
    snapshots = list(snapshots)
    return MetricsCollector(
        merge_snapshots(snapshot["counters"] for snapshot in snapshots),
        list(registry.index()),
        drift_reports(snapshots, registry),
    )


def metrics_response(metrics: MetricsCollector) -> Response:
    """The response to a scrape. With many models this takes a tenth of a second, so call it in a thread."""
    return Response(generate_latest(metrics), b"content-type: %b\r\n" % CONTENT_TYPE_PLAIN_0_0_4.encode())


def drift_reports(snapshots: Sequence[Mapping[str, Any]], registry: ModelRegistry) -> DriftReports:
    """The drift of each model's gates, over the rows of all workers."""
    reports = []
    for model in registry.models:
        if model.drift is not None:
            counts = [snapshot["drift"].get(model.name, {}).get(str(model.version)) for snapshot in snapshots]
            report = model.drift.merge(count for count in counts if count is not None)
            reports.append((model.name, model.version, report))
    return reports


class MetricsCollector(Collector):
    """All metrics: from merged counters, the index of the repository, and drift."""

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
        yield from self._models_traffic()
        yield from self._models_times()
        yield from self._models_states()
        yield from self._drift_metrics()

    def _process(self) -> Iterator[Metric]:
        yield InfoMetricFamily("turnpike_build", "Version of turnpike.", {"version": VERSION})
        yield _gauge(
            "turnpike_start_time_seconds",
            "Start time of the first worker, in seconds since 1970.",
            self._merged["started"],
        )
        yield _gauge("turnpike_workers", "Running worker processes.", self._merged["workers"])
        yield _gauge(
            "turnpike_workers_answering",
            "Workers that answered this scrape; for the others, the counts of their last report are used.",
            self._merged["answering"],
        )
        yield CounterMetricFamily(
            "turnpike_log_lines_dropped",
            "Lines of the log that could not be written in time.",
            self._merged["log_lines_dropped"],
        )

    def _http(self) -> Iterator[Metric]:
        yield _gauge(
            "turnpike_http_requests_in_flight", "Requests being processed.", self._merged["in_flight"]
        )
        requests = CounterMetricFamily(
            "turnpike_http_requests",
            "Responses, by route, method and status.",
            labels=("route", "method", "status"),
        )
        for route, methods in self._merged["answered"].items():
            for method, statuses in methods.items():
                for status, count in statuses.items():
                    requests.add_metric((route, method, status), count)
        yield requests
        seconds = HistogramMetricFamily(
            "turnpike_http_request_seconds",
            "Time from the headers of a request to the last byte of the response.",
            labels=("route",),
        )
        for route, histogram in self._merged["seconds"].items():
            _add_time_histogram(seconds, (route,), histogram)
        yield seconds
        refused = CounterMetricFamily(
            "turnpike_requests_refused", "Requests that got an error response, by reason.", labels=("reason",)
        )
        for reason, count in self._merged["refused"].items():
            refused.add_metric((reason,), count)
        yield refused
        yield from self._grpc_ends()
        events = CounterMetricFamily(
            "turnpike_payload_events", "Payload events, by what became of them.", labels=("outcome",)
        )
        for outcome, count in self._merged["payload_events"].items():
            events.add_metric((outcome,), count)
        yield events

    def _grpc_ends(self) -> Iterator[Metric]:
        for kind in ("stream", "connection"):
            ends = CounterMetricFamily(
                f"turnpike_grpc_{kind}s_ended",
                f"{kind.capitalize()}s of gRPC, by the reason of their end.",
                labels=("reason",),
            )
            for reason, count in self._merged[f"{kind}_ends"].items():
                ends.add_metric((reason,), count)
            yield ends

    def _models_traffic(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "turnpike_model_requests", "Successful requests of a model.", labels=MODEL_LABELS
        )
        failures = CounterMetricFamily(
            "turnpike_model_failures",
            "Failed requests of a model, by reason.",
            labels=(*MODEL_LABELS, "reason"),
        )
        rows = CounterMetricFamily(
            "turnpike_model_rows", "Rows of successful requests of a model.", labels=MODEL_LABELS
        )
        depth = GaugeMetricFamily(
            "turnpike_model_queue_depth", "Requests in the queue of a model.", labels=MODEL_LABELS
        )
        batch = HistogramMetricFamily(
            "turnpike_model_batch_rows", "Rows in one run of a model.", labels=MODEL_LABELS
        )
        warnings = CounterMetricFamily(
            "turnpike_model_input_warnings",
            "Cells of tables that the training of a model did not have, by kind.",
            labels=(*MODEL_LABELS, "kind"),
        )
        for labels, counts in self._models:
            requests.add_metric(labels, sum(counts["seconds"]["counts"]))
            for kind, count in counts["warnings"].items():
                warnings.add_metric((*labels, kind), count)
            for reason, (count, _) in counts["failed"].items():
                failures.add_metric((*labels, reason), count)
            rows.add_metric(labels, counts["rows"])
            depth.add_metric(labels, counts["waiting"])
            _add_histogram(batch, labels, counts["batch"], ROW_BOUNDS, 1)
        yield from (requests, failures, rows, warnings, depth, batch)

    def _models_times(self) -> Iterator[Metric]:
        for key, description in (
            ("seconds", "Time from the headers of a request to its encoded response."),
            ("queue", "Time of a request in the queue."),
            ("run", "Time of one run of the model, which may serve several requests."),
        ):
            name = "turnpike_model_request_seconds" if key == "seconds" else f"turnpike_model_{key}_seconds"
            family = HistogramMetricFamily(name, description, labels=MODEL_LABELS)
            for labels, counts in self._models:
                _add_time_histogram(family, labels, counts[key])
            yield family

    def _models_states(self) -> Iterator[Metric]:
        state = GaugeMetricFamily(
            "turnpike_model_state",
            "1 for the current state of a version, 0 for the others.",
            labels=(*MODEL_LABELS, "state"),
        )
        failed = GaugeMetricFamily(
            "turnpike_model_load_failed",
            "1 for a file that cannot be served, with the reason.",
            labels=(*MODEL_LABELS, "reason"),
        )
        states: dict[tuple[str, str], str] = {}
        reasons: set[tuple[str, str, str]] = set()
        for entry in self._index:
            key = (entry["name"], entry["version"])
            # a version can still be served although a new file for it could not be loaded
            if states.get(key) != "READY":
                states[key] = entry["state"]
            if (
                entry["reason"]
                and entry["version"]
                and not entry["reason"].startswith((UNLOADED, NOT_CHOSEN, NEW))
            ):
                reasons.add((*key, entry["reason"]))
        for key, current in states.items():
            for name in STATES:
                state.add_metric((*key, name), int(name == current))
        for labels in sorted(reasons):
            failed.add_metric(labels, 1)
        yield state
        yield failed

    def _drift_metrics(self) -> Iterator[Metric]:
        psi = GaugeMetricFamily(
            "turnpike_gate_drift_psi",
            "Population stability index of a gate: live values against the profile of the export.",
            labels=(*MODEL_LABELS, "gate"),
        )
        rows = GaugeMetricFamily(
            "turnpike_gate_drift_rows",
            "Rows of live traffic that drift is computed from.",
            labels=MODEL_LABELS,
        )
        for name, version, report in self._drift:
            rows.add_metric((name, str(version)), report.rows)
            for layer in report.layers:
                if layer.psi is not None:
                    psi.add_metric((name, str(version), layer.gate), layer.psi)
        yield psi
        yield rows


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(name, description, value)


def _add_time_histogram(family: HistogramMetricFamily, labels: Sequence[str], histogram: Snapshot) -> None:
    _add_histogram(family, labels, histogram, TIME_BOUNDS_NS, NANOSECONDS)


def _add_histogram(
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
