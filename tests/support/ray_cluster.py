"""Ray, in an environment of its own, and servers that run on it."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.live_server import Server, free_port, serving
from tests.support.locks import locked
from tests.support.virtualenvs import ROOT, installed_programs

HAPROXY_PORTS = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT")
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
    # Ray chooses no port itself
    options = ("--engine", "ray", "--port", free_port(), *arguments)
    chosen = {name: str(free_port()) for name in HAPROXY_PORTS} | {"RAY_ADDRESS": "local"}
    python = ray_programs() / "python"
    with (
        locked(ROOT / ".clients/haproxy.lock"),
        serving(*options, python=python, **chosen | variables) as server,
    ):
        yield server
