"""Ray, in an environment of its own, and servers that run on it."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from tests.support.live_server import Server, free_port, ready_server, start_server
from tests.support.locks import locked
from tests.support.virtualenvs import ROOT, installed_programs
from tests.support.waiting import wait_until

HAPROXY_PORTS = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT")
# A cluster starts in 18 s where nothing else runs.
PATIENCE = 420
REQUIREMENT = "ray[data,serve]==2.60.0"


@cache
def ray_programs() -> Path:
    """The `bin` folder of the environment of Ray; our other libraries come from the running one."""
    programs = installed_programs("ray", REQUIREMENT)
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
    return programs


@contextmanager
def serving_on_ray(*arguments: object, **variables: str) -> Iterator[Server]:
    """A server on a Ray cluster of its own."""
    with (
        _started_on_ray(*arguments, **variables) as process,
        ready_server(process, PATIENCE) as server,
    ):
        yield server


@contextmanager
def starting_on_ray() -> Iterator[subprocess.Popen[str]]:
    """A server on a Ray cluster of its own, of which the cluster runs, but not the service."""
    with _started_on_ray() as process:
        wait_until(lambda: _has_controller(process.pid), PATIENCE)
        yield process


@contextmanager
def _started_on_ray(*arguments: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A server that starts; one at a time, because some ports of HAProxy cannot be chosen."""
    # Ray chooses no port itself
    options = ("--engine", "ray", "--port", free_port(), *arguments)
    chosen = {name: str(free_port()) for name in HAPROXY_PORTS} | {"RAY_ADDRESS": "local"}
    python = ray_programs() / "python"
    with (
        locked(ROOT / ".clients/haproxy.lock"),
        start_server(*options, python=python, **chosen | variables) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _has_controller(pid: int) -> bool:
    names = (" ".join(child.cmdline()) for child in psutil.Process(pid).children(recursive=True))
    return any("ServeController" in name for name in names)
