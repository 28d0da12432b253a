"""What a PromQL query asks for, and what the service has to give."""

from __future__ import annotations

import re
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

from service.api.metrics import collect_metrics, metrics_response
from tests.service.api.test_metrics import FakeDrift, FakeRegistry, worker

# what Prometheus itself adds to every series of a target
ADDED = {"job", "instance"}

_SELECTOR = re.compile(r'\b((?:turnpike_|up\b)\w*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?')
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


def selected(query: str) -> dict[str, set[str]]:
    """Each series that a query names, and the labels that its matchers name."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, matchers in _SELECTOR.findall(query):
        found[name] |= set(_MATCHER.findall(matchers))
    return found


def grouped(query: str) -> set[str]:
    """The labels that a query sums or joins by."""
    return {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",")}


def exposed() -> dict[str, set[str]]:
    """Each series that the service exposes, and its labels; `up` is what Prometheus makes of it."""
    drift, index = (
        FakeDrift(),
        {"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": "damaged"},
    )
    model = type("Model", (), {"name": "digits", "version": 1, "drift": drift})
    text = metrics_response(
        collect_metrics([worker(1, drift_rows=1000)], FakeRegistry(model, index=(index,)))
    ).body.decode()
    found: dict[str, set[str]] = {"up": set(ADDED)}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set(ADDED)).update(sample.labels)
    return found


def unanswerable(query: str) -> list[str]:
    """What a query asks for that there is not."""
    have, asked = exposed(), selected(query)
    missing = [name for name in asked if name not in have]
    missing += [
        f"{name}{{{label}}}"
        for name, labels in asked.items()
        if name in have
        for label in labels - have[name]
    ]
    known = set().union(*(have[name] for name in asked if name in have))
    return missing + [f"by ({label})" for label in grouped(query) - known]
