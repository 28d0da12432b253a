"""A docker compose project for tests, from the repository's own docker-compose.yml."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.live_server import free_port
from tests.support.load_clients import ClientRequest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PREDICT = "/v1/models/digits-10:predict"
# the request of the README's curl line
BODY = re.findall(r"curl .*digits-10:predict -d '(\{.*\})'", README)[0].encode()


def check(body: bytes) -> str | None:
    """The fault of an answer to the README's request; None if there is none."""
    label = json.loads(body)["predictions"][0]["label"]
    return None if label == "0" else f"expected the label 0, got {label!r}"


README_REQUEST = ClientRequest(PREDICT, BODY, check=check)


@functools.cache
def engine() -> str | None:
    """The reason why there is no usable Docker engine; None if there is one."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    for arguments in (["info"], ["compose", "version"]):
        result = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        if result.returncode:
            return f"docker {' '.join(arguments)}: {result.stderr.strip()}"
    return None


def need_engine() -> None:
    """Skip the test without an engine; fail if TURNPIKE_CONTAINERS says that there must be one."""
    if reason := engine():
        if os.environ.get("TURNPIKE_CONTAINERS") == "required":
            pytest.fail(f"expected a Docker engine, got none: {reason}")
        pytest.skip(reason)


def docker(*arguments: str) -> str:
    """Run a docker command that must succeed; returns its output."""
    result = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, f"docker {' '.join(arguments)}: {result.stdout}{result.stderr}"
    return result.stdout.strip()


@dataclass
class Project:
    """A project with its own containers, network, volumes and ports; `variables` are for the compose file."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    scale_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)
    scale_grpc_port: int = field(default_factory=free_port)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
        own = {
            "PORT": str(self.port),
            "GRPC_PORT": str(self.grpc_port),
            "SCALE_PORT": str(self.scale_port),
            "SCALE_GRPC_PORT": str(self.scale_grpc_port),
            "LOADTEST_PORT": "0",
        }
        return inherited | own | {"COMPOSE_PROJECT_NAME": self.name} | self.variables

    def run(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the root of the repository, with the environment of this project."""
        return subprocess.run(
            arguments,
            cwd=ROOT,
            env=self.environment | changes,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def compose(self, *arguments: str, **changes: str) -> str:
        """Both outputs of a docker compose command that must succeed."""
        result = self.run("docker", "compose", *arguments, **changes)
        assert result.returncode == 0, f"docker compose {' '.join(arguments)}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def ids(self, service: str) -> list[str]:
        return self.compose("--profile", "*", "ps", "--quiet", "--all", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        details: dict[str, Any] = json.loads(docker("inspect", container))[0]
        return details

    def inside(self, service: str, script: str) -> str:
        """The output of a shell command in a service's container."""
        (container,) = self.ids(service)[:1]
        return docker("exec", container, "sh", "-c", script)

    def address(self, service: str, port: int = 8000) -> str:
        """A container's own address, without the engine's proxy in between."""
        (network,) = self.inspect(self.ids(service)[0])["NetworkSettings"]["Networks"].values()
        return f"http://{network['IPAddress']}:{port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=30, **options)

    def post(self, path: str, body: bytes, **options: Any) -> requests.Response:
        return requests.post(self.url + path, data=body, timeout=30, **options)


@contextmanager
def temporary_project(name: str, **variables: str) -> Iterator[Project]:
    """A project that leaves nothing behind except its images."""
    project = Project(f"turnpike-{name}-{os.getpid()}", variables)
    try:
        yield project
    finally:
        project.run("docker", "compose", "--profile", "*", "kill")  # without waiting for a drain
        project.compose("--profile", "*", "down", "--volumes", "--remove-orphans")
