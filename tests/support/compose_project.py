"""A project of docker compose for tests, made from the repository's own file."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.load_clients import ClientRequest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PREDICT = "/v1/models/digits-10:predict"
# the row that the README asks about
BODY = re.findall(r"curl .*digits-10:predict -d '(\{.*\})'", README)[0].encode()


def check(body: bytes) -> str | None:
    """Whether an answer says what the README says of it."""
    label = json.loads(body)["predictions"][0]["label"]
    return None if label == "0" else f"expected the label 0, got {label!r}"


SHOT = ClientRequest(PREDICT, BODY, check=check)


@functools.cache
def engine() -> str | None:
    """Why there is no engine that can run the project, None where there is one."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    for words in (["info"], ["compose", "version"]):
        ran = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=60)
        if ran.returncode:
            return f"docker {' '.join(words)}: {ran.stderr.strip()}"
    return None


def need_engine() -> None:
    """Skip without an engine, or fail where the environment says that there must be one."""
    if reason := engine():
        if os.environ.get("TURNPIKE_CONTAINERS") == "required":
            pytest.fail(f"expected a Docker engine, got none: {reason}")
        pytest.skip(reason)


def docker(*words: str) -> str:
    """What docker says to a command that must go well."""
    ran = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, f"docker {' '.join(words)}: {ran.stdout}{ran.stderr}"
    return ran.stdout.strip()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Project:
    """A project of its own: containers, network, volumes and ports; `variables` are those of the file."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    scale_port: int = field(default_factory=free_port)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
        own = {"PORT": str(self.port), "SCALE_PORT": str(self.scale_port), "LOADTEST_PORT": "0"}
        return kept | own | {"COMPOSE_PROJECT_NAME": self.name} | self.variables

    def run(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """A program in the repository, which finds this project."""
        return subprocess.run(
            words,
            cwd=ROOT,
            env=self.environment | changes,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def compose(self, *words: str, **changes: str) -> str:
        """What docker compose says, on both its outputs, to a command that must go well."""
        ran = self.run("docker", "compose", *words, **changes)
        assert ran.returncode == 0, f"docker compose {' '.join(words)}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def ids(self, service: str) -> list[str]:
        return self.compose("--profile", "*", "ps", "--quiet", "--all", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(docker("inspect", container))[0]
        return found

    def inside(self, service: str, script: str) -> str:
        """What a shell line says in a service's container."""
        (container,) = self.ids(service)[:1]
        return docker("exec", container, "sh", "-c", script)

    def address(self, service: str, port: int = 8000) -> str:
        """A container's own address: no proxy of the engine takes connections for it."""
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
def project(name: str, **variables: str) -> Iterator[Project]:
    """A project that leaves nothing behind but its images."""
    one = Project(f"turnpike-{name}-{os.getpid()}", variables)
    try:
        yield one
    finally:
        one.run("docker", "compose", "--profile", "*", "kill")  # nobody waits for a drain
        one.compose("--profile", "*", "down", "--volumes", "--remove-orphans")
