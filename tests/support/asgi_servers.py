"""Servers for ASGI that others make, each in a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.live_server import environment, free_port
from tests.support.python_path import python_path

START_SECONDS = 60
COMMANDS: dict[str, tuple[str, ...]] = {
    "uvicorn": ("-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}", "{app}"),
    "hypercorn": ("-m", "hypercorn", "--bind", "127.0.0.1:{port}", "{app}"),
    "granian": ("-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}", "{app}"),
}


@dataclass
class AsgiServer:
    """A running server."""

    port: int
    process: subprocess.Popen[str]
    log: Path

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self.port}{path}", timeout=30, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return requests.post(f"http://127.0.0.1:{self.port}{path}", json=body, timeout=30, **options)

    def stop(self) -> int:
        """Stop it as a container does; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextlib.contextmanager
def asgi_server(
    name: str, app: str, folder: Path, *options: str, alive: str = "/v2/health/live", **variables: str
) -> Iterator[AsgiServer]:
    """A server that runs `app`, such as "module:app", in this folder.

    Args:
        name: One of COMMANDS.
        app: The application.
        folder: The current folder, in which modules are found, too.
        options: More options.
        alive: Answered with 200 when the server runs.
        variables: More environment variables.
    """
    port = free_port()
    command = [part.format(port=port, app=app) for part in COMMANDS[name]]
    variables = {"PYTHONPATH": f"{folder}:{python_path()}", **variables}
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *command, *options],
            cwd=folder,
            env=environment(**variables),
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    server = AsgiServer(port, process, log)
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(requests.ConnectionError):
                if server.get(alive).status_code == 200:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
