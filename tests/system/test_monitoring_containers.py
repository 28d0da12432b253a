"""The profile `monitoring` on a real engine: Prometheus finds the service and collects with a key."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compose_project import ROOT, Project, docker, need_engine, temporary_project
from tests.support.live_server import free_port
from tests.support.prometheus import Prometheus

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

IMAGE = "turnpike-test-prometheus"


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
        project.compose("build", "service", "export", MODELS="./service/default")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Project, Prometheus]]:
    """The service and its Prometheus; callers need a key."""
    port = free_port()
    key = tmp_path / "key"
    key.write_text(secrets.token_hex() + "\n")
    # readable for the users of both containers
    key.chmod(0o644)
    variables = {
        "PROMETHEUS_IMAGE": IMAGE,
        "PROMETHEUS_PORT": str(port),
        "MODELS": "./service/default",
        "API_KEYS_FILE": str(key),
        "METRICS_KEY_FILE": str(key),
    }
    with temporary_project("monitoring", **variables) as project:
        project.compose("--profile", "monitoring", "up", "--wait", "service", "prometheus")
        yield project, Prometheus(f"http://127.0.0.1:{port}")


@pytest.mark.thorough
def test_prometheus_collects_from_the_running_service(watched: tuple[Project, Prometheus]) -> None:
    """It finds the service by name, collects with the key, has the alerts, and keeps its data."""
    project, prometheus = watched
    assert project.get("/metrics").status_code == 401
    target = prometheus.target()
    assert target["health"] == "up", target["lastError"]
    assert target["labels"]["service"] == "service"
    before = time.time()
    assert prometheus.ask("query", query="turnpike_workers", time=before)["result"]
    (group,) = prometheus.ask("rules")["groups"]
    assert group["rules"]
    status = project.inside("prometheus", "cat /proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert "touch: " in project.inside("prometheus", "touch /etc/prometheus/alerts.yml 2>&1 || true")
    project.compose("--profile", "monitoring", "up", "--detach", "--force-recreate", "--wait", "prometheus")
    assert prometheus.ask("query", query="turnpike_workers", time=before)["result"]
