"""Ray, in an environment of its own, and servers that run on it."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from tests.support.live_server import Server, environment, free_port, serving
from tests.support.locks import locked
from tests.support.virtualenvs import ROOT, installed_programs
from tests.support.waiting import wait_until

HAPROXY_PORTS = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT")
# Ray chooses no port itself
OPTIONS = ("--engine", "ray", "--port")
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
    """A server on a Ray cluster of its own; one at a time, because some ports of HAProxy cannot be chosen."""
    python, variables = ray_programs() / "python", own_cluster() | variables
    with (
        locked(ROOT / ".clients/haproxy.lock"),
        serving(*OPTIONS, free_port(), *arguments, python=python, patience=PATIENCE, **variables) as server,
    ):
        yield server


@contextmanager
def starting_on_ray() -> Iterator[subprocess.Popen[str]]:
    """A server on a Ray cluster of its own, of which the cluster runs, but not the service."""
    with locked(ROOT / ".clients/haproxy.lock"):
        process = subprocess.Popen(
            [ray_programs() / "python", "-m", "turnpike", "serve", *map(str, (*OPTIONS, free_port()))],
            cwd=ROOT,
            env=environment(**own_cluster()),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: _has_controller(process.pid), PATIENCE)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=PATIENCE)


def own_cluster() -> dict[str, str]:
    """Variables with which a cluster is a new one, beside others."""
    return {name: str(free_port()) for name in HAPROXY_PORTS} | {"RAY_ADDRESS": "local"}


def _has_controller(pid: int) -> bool:
    names = (" ".join(child.cmdline()) for child in psutil.Process(pid).children(recursive=True))
    return any("ServeController" in name for name in names)
