"""Real servers on real ports: `turnpike serve` and other commands as child processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil
import requests

from tests.support.python_path import python_path

ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """A running `turnpike serve`. `lines` is its output so far.

    `url` is the address of HTTP, and `grpc_address` host and port of gRPC, if it has one.
    """

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""
    grpc_address: str = ""
    ready: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if match := re.search(r"serves (https?://[^\s\"]+)", line):
                self.url = match[1]
                grpc = re.search(r"and gRPC on (\S+)", line)
                self.grpc_address = grpc[1] if grpc else ""
                self.ready.set()
        self.ready.set()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def logged(self) -> list[dict[str, Any]]:
        """The log records, which are lines of JSON."""
        return [orjson.loads(line) for line in list(self.lines) if line.startswith("{")]

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=30, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        content = {"data" if isinstance(body, bytes) else "json": body}
        return requests.post(self.url + path, **{"timeout": 30, **content, **options})

    def stop(self, patience: float = 30) -> int:
        """Stop it with SIGTERM; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def environment(**changes: str) -> dict[str, str]:
    """The environment without TURNPIKE_ variables, except for those in `changes`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
    return inherited | {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path()} | changes


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def serving(*arguments: object, python: Path | str = sys.executable, **variables: str) -> Iterator[Server]:
    """A server on a free port, ready for requests. At the end it must stop with status 0."""
    with ready_server(start_server("--port", 0, *arguments, python=python, **variables)) as server:
        yield server


def start_server(
    *arguments: object, python: Path | str = sys.executable, **variables: str
) -> subprocess.Popen[str]:
    """A server that starts, and waits for no drain unless the arguments say so."""
    options = [str(argument) for argument in arguments]
    if "--drain-wait" not in options:
        options += ["--drain-wait", "0"]
    return subprocess.Popen(
        [python, "-m", "turnpike", "serve", *options],
        cwd=ROOT,
        env=environment(**variables),
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def ready_server(process: subprocess.Popen[str], patience: float = 60) -> Iterator[Server]:
    """A server that starts within `patience` seconds, and stops with status 0 in half of them."""
    server = Server(process)
    listener = threading.Thread(target=server.listen, daemon=True)
    listener.start()
    try:
        assert server.ready.wait(patience), server.output
        assert server.url, server.output
        yield server
    finally:
        status = server.stop(patience / 2)
        listener.join(10)
        if process.stderr:
            process.stderr.close()
    assert status == 0, server.output


@contextlib.contextmanager
def module(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Run `python -m` with these arguments in the root of the repository, and terminate it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=30)


def worker_processes(server: Server) -> list[psutil.Process]:
    """The worker processes of a server."""
    return psutil.Process(server.process.pid).children()
