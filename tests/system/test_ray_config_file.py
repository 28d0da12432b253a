"""Ray's own commands deploy the service from a config file, and Ray scales it with the requests."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.support.live_server import environment, free_port
from tests.support.ray_cluster import ray_programs
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(600)]

CLIENTS = 16
VARIABLES = environment(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
BODY: Any = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}


@dataclass
class RayTools:
    """Ray's own commands, for a cluster with a dashboard."""

    programs: Path
    dashboard: int

    def run(self, name: str, *arguments: object) -> str:
        result = subprocess.run(
            [self.programs / name, *map(str, arguments)],
            env=VARIABLES,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def deploy(self, config: Path) -> None:
        self.run("serve", "deploy", "-a", f"http://127.0.0.1:{self.dashboard}", config)

    def status(self) -> Any:
        return yaml.safe_load(self.run("serve", "status", "-a", f"http://127.0.0.1:{self.dashboard}"))

    def replicas(self) -> int:
        """The replicas of our application that run."""
        deployment = self.status()["applications"]["turnpike"]["deployments"].get("turnpike", {})
        return int(deployment.get("replica_states", {}).get("RUNNING", 0))


@pytest.fixture
def tools() -> Iterator[RayTools]:
    """A cluster of one node that ends with the process `ray start`."""
    dashboard = free_port()
    options = {
        "num-cpus": 4,
        "port": free_port(),
        "include-dashboard": "true",
        "dashboard-port": dashboard,
        "dashboard-agent-listen-port": free_port(),
        "metrics-export-port": free_port(),
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    programs = ray_programs()
    command: list[str | Path] = [programs / "ray", "start", "--head", "--block", *words]
    node = subprocess.Popen(command, env=VARIABLES, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        version = f"http://127.0.0.1:{dashboard}/api/version"
        wait_until(lambda: requests.get(version, timeout=5).ok, seconds=60, allowed=requests.RequestException)
        yield RayTools(programs, dashboard)
    finally:
        node.terminate()
        node.wait(60)


@contextmanager
def load(url: str) -> Iterator[list[int]]:
    """Clients that send one request after the other; the statuses of the answers."""
    stopping = threading.Event()
    statuses: list[int] = []

    def run() -> None:
        session = requests.Session()
        while not stopping.is_set():
            statuses.append(session.post(f"{url}/v2/models/net/infer", json=BODY, timeout=30).status_code)

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_a_config_file_is_deployed_and_scales_with_the_requests(tools: RayTools, tmp_path: Path) -> None:
    """As Ray's own `serve build` writes it, with a shorter time before replicas are added and taken away."""
    put_model(tmp_path / "repository")
    port = free_port()
    tools.run("serve", "build", "turnpike.service.ray.from_environment:app", "-o", tmp_path / "config.yaml")
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    (application,) = config["applications"]
    application |= {
        "name": "turnpike",
        "import_path": "turnpike.service.ray.application:build_for_config_file",
        # each request waits for others, so that requests pile up
        "args": {"models": str(tmp_path / "repository"), "max_delay_ms": 500, "allow_unverified": True},
    }
    deployments = {deployment["name"]: deployment for deployment in application["deployments"]}
    deployments["turnpike"]["autoscaling_config"] |= {
        "max_replicas": 3,
        "target_ongoing_requests": 2,
        "upscale_delay_s": 1,
        "downscale_delay_s": 2,
        "look_back_period_s": 2,
        "metrics_interval_s": 0.5,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    tools.deploy(tmp_path / "config.yaml")
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: is_ready(url), seconds=60)
    with load(url) as statuses:
        wait_until(lambda: tools.replicas() == 3, seconds=60)
        time.sleep(2)
    wait_until(lambda: tools.replicas() == 1, seconds=90)
    assert set(statuses) == {200}

    # a setting that does not exist changes nothing, and is named
    application["args"]["max_bach"] = 3
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    tools.deploy(tmp_path / "config.yaml")
    wait_until(lambda: tools.status()["applications"]["turnpike"]["status"] == "DEPLOY_FAILED", seconds=60)
    message = tools.status()["applications"]["turnpike"]["message"]
    assert "SettingError: there is no such setting; did you mean max_batch?" in message
    assert is_ready(url)


def is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/v2/health/ready", timeout=5).status_code == 200
    except requests.RequestException:
        return False
