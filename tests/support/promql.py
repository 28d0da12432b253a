"""Checks that a PromQL query uses only series and labels that the service exposes."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, cast

from prometheus_client.parser import text_string_to_metric_families

from tests.support.worker_snapshots import FakeDrift, FakeRegistry, worker_snapshot
from turnpike.service.api.metrics import collect_metrics, metrics_response

if TYPE_CHECKING:
    from turnpike.service.registry.served_models import ModelRegistry

# labels that Prometheus itself adds to every series of a target, `service` by prometheus.yml
TARGET_LABELS = {"job", "instance", "service"}
# the series that deploy/prometheus/start records
RECORDED = {"turnpike_replicas_expected": {"job"}}

_SELECTOR = re.compile(r'\b((?:turnpike_|up\b)\w*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?')
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


def selected_series(query: str) -> dict[str, set[str]]:
    """Each series in a query, with the labels that its matchers use."""
    series: dict[str, set[str]] = defaultdict(set)
    for name, matchers in _SELECTOR.findall(query):
        series[name] |= set(_MATCHER.findall(matchers))
    return series


def grouping_labels(query: str) -> set[str]:
    """The labels that a query groups or joins by."""
    return {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",")}


def exposed_series() -> dict[str, set[str]]:
    """Each series that the service exposes, with its labels; `up` and others come from Prometheus itself."""
    drift = FakeDrift()
    index = {"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": "damaged"}
    model = type("Model", (), {"name": "digits", "version": 1, "drift": drift})
    registry = cast("ModelRegistry", FakeRegistry(model, index=(index,)))
    text = bytes(
        metrics_response(collect_metrics([worker_snapshot(1, drift_rows=1000)], registry)).body
    ).decode()
    series: dict[str, set[str]] = {"up": set(TARGET_LABELS), **RECORDED}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, set(TARGET_LABELS)).update(sample.labels)
    return series


def missing_series(query: str) -> list[str]:
    """Series, labels and groupings in a query that do not exist."""
    exposed, used = exposed_series(), selected_series(query)
    missing = [name for name in used if name not in exposed]
    missing += [
        f"{name}{{{label}}}"
        for name, labels in used.items()
        if name in exposed
        for label in labels - exposed[name]
    ]
    known = set().union(*(exposed[name] for name in used if name in exposed))
    return missing + [f"by ({label})" for label in grouping_labels(query) - known]
