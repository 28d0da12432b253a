"""The profile `monitoring` on a real engine: Prometheus collects over HTTPS, and notices a lost replica."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.compose_project import ROOT, Project, docker, need_engine, temporary_project
from tests.support.live_server import free_port
from tests.support.prometheus import Prometheus
from tests.support.tls_certificate import certificate
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

IMAGE = "turnpike-test-prometheus"
OWN = {"MODELS": "./service/default"}


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """The service's image, and Debian's Prometheus instead of the official image."""
    need_engine()
    docker(
        "build",
        "--quiet",
        f"--tag={IMAGE}",
        f"--file={ROOT / 'tests/containers/prometheus.Dockerfile'}",
        str(ROOT / "tests/containers"),
    )
    with temporary_project("monitoring-build") as project:
        project.compose("--profile", "scale", "build", "service", "export", "replica", "proxy", **OWN)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Project, Prometheus]]:
    """The service and its Prometheus; callers need a key and speak HTTPS."""
    port = free_port()
    cert, tls_key = certificate(tmp_path)
    tls_key.chmod(0o644)
    key = tmp_path / "key"
    key.write_text(secrets.token_hex() + "\n")
    # readable for the users of both containers
    key.chmod(0o644)
    variables = {
        "PROMETHEUS_IMAGE": IMAGE,
        "PROMETHEUS_PORT": str(port),
        "API_KEYS_FILE": str(key),
        "METRICS_KEY_FILE": str(key),
        "TLS_CERT": str(cert),
        "TLS_KEY": str(tls_key),
        **OWN,
    }
    with temporary_project("monitoring", **variables) as project:
        project.compose("--profile", "monitoring", "up", "--wait", "service", "prometheus")
        yield project, Prometheus(f"http://127.0.0.1:{port}")


@pytest.mark.thorough
def test_prometheus_collects_from_the_running_service(watched: tuple[Project, Prometheus]) -> None:
    """It finds the service by name, collects with the key over HTTPS, has the alerts, and keeps its data."""
    project, prometheus = watched
    url = f"https://127.0.0.1:{project.port}/metrics"
    assert requests.get(url, verify=project.variables["TLS_CERT"], timeout=30).status_code == 401
    target = prometheus.target()
    assert target["health"] == "up", target["lastError"]
    assert target["scrapeUrl"].startswith("https://")
    assert target["labels"]["service"] == "service"
    before = time.time()
    assert prometheus.ask("query", query="turnpike_workers", time=before)["result"]
    assert {group["name"] for group in prometheus.ask("rules")["groups"]} == {"turnpike", "replicas"}
    status = project.inside("prometheus", "cat /proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert "touch: " in project.inside("prometheus", "touch /etc/prometheus/alerts.yml 2>&1 || true")
    project.compose("--profile", "monitoring", "up", "--detach", "--force-recreate", "--wait", "prometheus")
    assert prometheus.ask("query", query="turnpike_workers", time=before)["result"]


def test_a_killed_replica_raises_an_alert() -> None:
    """Docker does not restart it, and Prometheus finds it no more. The alert ends with a new replica."""
    port = free_port()
    variables = {"PROMETHEUS_IMAGE": IMAGE, "PROMETHEUS_PORT": str(port), **OWN}
    with temporary_project("lost", **variables) as project:
        start = ("--profile", "scale", "--profile", "monitoring", "up", "--wait", "proxy", "prometheus")
        project.compose(*start)
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        answering = "count(up{service='replica'} == 1)"

        def values(query: str) -> list[str]:
            return [series["value"][1] for series in prometheus.ask("query", query=query)["result"]]

        def alerts() -> dict[str, str]:
            found = prometheus.ask("alerts")["alerts"]
            return {alert["labels"]["alertname"]: alert["state"] for alert in found}

        # pending while only one of them was found
        wait_until(lambda: values(answering) == ["2"] and "TurnpikeReplicaLost" not in alerts(), 60)
        assert values("turnpike_replicas_expected") == ["2"]
        docker("kill", project.ids("replica")[0])
        wait_until(lambda: alerts().get("TurnpikeReplicaLost") == "pending", 90)
        assert values(answering) == ["1"]
        project.compose(*start)
        wait_until(lambda: "TurnpikeReplicaLost" not in alerts(), 90)
