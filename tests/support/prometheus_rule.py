"""The alerts as a resource of Kubernetes, for clusters with the Prometheus operator.

    python -m tests.support.prometheus_rule

writes it after a change of deploy/prometheus/alerts.yml; a test compares the two.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.virtualenvs import ROOT

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
RULE = ROOT / "deploy/kubernetes/prometheus/rule.yaml"
HEADER = """\
# The alerts of ../../prometheus/alerts.yml. After a change there: python -m tests.support.prometheus_rule
"""
# compose says how many replicas there should be; in a cluster, kube-state-metrics knows
REPLICA_LOST = {
    "expr": (
        'kube_deployment_status_replicas_available{deployment="turnpike"} '
        '< kube_deployment_spec_replicas{deployment="turnpike"}'
    ),
    "for": "5m",
    "annotations": {
        "summary": "Replicas that answer: {{ $value }}, and more are expected",
        "description": (
            "Pods cannot start, or are not ready: `kubectl get pods -l app.kubernetes.io/name=turnpike`."
        ),
    },
}


def prometheus_rule() -> dict[str, Any]:
    """The resource, from the file of alerts."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for group in groups:
        group["rules"] = [
            rule | REPLICA_LOST if rule.get("alert") == "TurnpikeReplicaLost" else rule
            for rule in group["rules"]
        ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "turnpike", "labels": {"app.kubernetes.io/name": "turnpike"}},
        "spec": {"groups": groups},
    }


if __name__ == "__main__":
    text = yaml.safe_dump(prometheus_rule(), sort_keys=False, width=120, allow_unicode=True)
    RULE.write_text(HEADER + text, encoding="utf-8")
