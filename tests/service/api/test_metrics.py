"""The metrics endpoint: Prometheus reads the sums of what all workers have counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.worker_snapshots import FakeDrift, FakeRegistry, worker_snapshot
from turnpike.service.api.metrics import collect_metrics, metrics_response
from turnpike.service.telemetry.counters import without_gauges
from turnpike.service.telemetry.log_writer import log_writer


def scrape(
    snapshots: list[dict[str, Any]], registry: FakeRegistry | None = None
) -> tuple[dict[str, Any], dict[Any, float]]:
    """Families by name, and values by name and labels, as Prometheus parses them."""
    response = metrics_response(collect_metrics(snapshots, registry or FakeRegistry()))
    assert response.lines.startswith(b"content-type: text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(response.body.decode())}
    values: dict[Any, float] = {}
    for family in families.values():
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in values, (
                "expected one value for each name and labels: Prometheus refuses duplicates"
            )
            values[key] = sample.value
    return families, values


MODEL = (("model", "digits"), ("version", "1"))


def test_metrics_are_sums_over_workers() -> None:
    _, values = scrape([worker_snapshot(3, waiting=2), worker_snapshot(4, waiting=1)])
    route = ("route", "/v2/models/{model}/infer")
    assert values["turnpike_workers",] == 2
    assert values["turnpike_http_requests_total", ("method", "POST"), route, ("status", "200")] == 7
    assert values["turnpike_http_request_seconds_count", route] == 7
    assert values["turnpike_http_request_seconds_sum", route] == pytest.approx(0.021)
    assert values["turnpike_requests_refused_total", ("reason", "overloaded")] == 2
    assert values["turnpike_model_requests_total", *MODEL] == 7
    assert values["turnpike_model_rows_total", *MODEL] == 14
    assert values["turnpike_model_queue_depth", *MODEL] == 3
    assert values["turnpike_model_failures_total", MODEL[0], ("reason", "overloaded"), MODEL[1]] == 2
    assert values["turnpike_model_queue_seconds_count", *MODEL] == 7
    assert values["turnpike_model_queue_seconds_sum", *MODEL] == pytest.approx(7 * 20e-6)
    assert values["turnpike_model_run_seconds_sum", *MODEL] == pytest.approx(0.007)
    assert values["turnpike_model_request_seconds_sum", *MODEL] == pytest.approx(0.021)


def test_dropped_lines_of_all_processes_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a worker that has ended still count."""
    monkeypatch.setattr(log_writer, "dropped", 3)
    worker = worker_snapshot(1)
    monkeypatch.setattr(log_writer, "dropped", 4)
    dead = {"counters": without_gauges(worker_snapshot(1)["counters"]), "drift": {}}
    families, values = scrape([worker, dead])
    assert values["turnpike_log_lines_dropped_total",] == 7
    assert families["turnpike_log_lines_dropped"].type == "counter"


def test_buckets_are_cumulative() -> None:
    """A bucket counts values up to its bound, in seconds or rows, and the last one counts all."""
    _, values = scrape([worker_snapshot(3)])

    def bucket(name: str, bound: str) -> float:
        return values[f"turnpike_model_{name}_bucket", ("le", bound), *MODEL]

    assert (bucket("request_seconds", "0.0025"), bucket("request_seconds", "0.005")) == (0, 3)
    assert (bucket("run_seconds", "0.0005"), bucket("run_seconds", "0.001")) == (0, 3)
    assert (bucket("queue_seconds", "5e-05"), bucket("queue_seconds", "+Inf")) == (3, 3)
    assert (bucket("batch_rows", "1.0"), bucket("batch_rows", "2.0")) == (0, 3)


def test_counters_of_ended_workers_still_count() -> None:
    """The requests of a worker stay in the counters after its end. Its gauges are 0."""
    dead = {"counters": without_gauges(worker_snapshot(5, waiting=9)["counters"]), "drift": {}}
    _, values = scrape([worker_snapshot(1), dead])
    assert values["turnpike_workers",] == 1
    assert values["turnpike_model_requests_total", *MODEL] == 6
    assert values["turnpike_model_queue_depth", *MODEL] == 0


def test_every_metric_is_described() -> None:
    """Each has a type and a sentence. Counters end in _total, and times are in seconds."""
    families, _ = scrape([worker_snapshot(1)])
    assert families["turnpike_build_info"].type == "gauge"
    for name, family in families.items():
        assert name.startswith("turnpike_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
    assert {name for name, family in families.items() if family.type == "histogram"} == {
        "turnpike_http_request_seconds",
        "turnpike_model_request_seconds",
        "turnpike_model_queue_seconds",
        "turnpike_model_run_seconds",
        "turnpike_model_batch_rows",
    }


def test_each_version_has_a_state_and_a_reason() -> None:
    """One state is 1. A file that failed has its reason, even if an older version is served."""
    registry = FakeRegistry(
        index=(
            {"name": "digits", "version": "1", "state": "READY", "reason": ""},
            {"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": 'a "new" file\nis damaged'},
            {"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": 'a "new" file\nis damaged'},
            {"name": "other", "version": "2", "state": "LOADING", "reason": ""},
            {"name": "away", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        )
    )
    _, values = scrape([worker_snapshot(1)], registry)
    states = {key[1:]: value for key, value in values.items() if key[0] == "turnpike_model_state"}
    assert {key for key, value in states.items() if value} == {
        (MODEL[0], ("state", "READY"), MODEL[1]),
        (("model", "other"), ("state", "LOADING"), ("version", "2")),
        (("model", "away"), ("state", "UNAVAILABLE"), ("version", "1")),
    }
    assert len(states) == 9
    failed = [key[1:] for key in values if key[0] == "turnpike_model_load_failed"]
    assert failed == [(MODEL[0], ("reason", 'a "new" file\nis damaged'), MODEL[1])]


def test_drift_needs_a_minimum_number_of_rows() -> None:
    """The rows of all workers count. With too few of them there is no index, instead of a zero."""
    registry = FakeRegistry(
        SimpleNamespace(name="digits", version=1, drift=FakeDrift()),
        SimpleNamespace(name="plain", version=1, drift=None),
    )
    _, values = scrape(
        [worker_snapshot(1, drift_rows=150), worker_snapshot(1, drift_rows=100), worker_snapshot(1)], registry
    )
    assert values["turnpike_gate_drift_rows", *MODEL] == 250
    assert values["turnpike_gate_drift_psi", ("gate", "layer00.transform_gate"), *MODEL] == 0.25
    _, values = scrape([worker_snapshot(1, drift_rows=50)], registry)
    assert values["turnpike_gate_drift_rows", *MODEL] == 50
    assert not [key for key in values if key[0] == "turnpike_gate_drift_psi"]


def test_a_scrape_without_workers_succeeds() -> None:
    _, values = scrape([])
    assert values["turnpike_workers",] == 0
