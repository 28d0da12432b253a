"""One contestant under way: started, waited for until it answers rightly, measured, and ended."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from benchmarks import bodies, processes
from benchmarks.bodies import Form
from benchmarks.contestants import Contestant
from benchmarks.errors import BenchmarkError, SilentError
from benchmarks.load import HOST, ask
from benchmarks.nets import Net
from benchmarks.places import LOGS

READY_SECONDS = 60
END_SECONDS = 5
# what must not reach a rival's Python from ours
OWN = ("PYTHON", "VIRTUAL_ENV", "TURNPIKE_")


@dataclass
class Server:
    """It runs; `started` is how many seconds it took from its command to its first right answer."""

    contestant: Contestant
    net: Net
    port: int
    process: psutil.Process
    started: float = 0

    def path(self, form: Form) -> str:
        return self.contestant.forms[form].format(net=self.net.name)

    def check(self, form: Form, rows: int) -> None:
        """Stop with a BenchmarkError unless it answers these many rows as the network does."""
        request = bodies.request(form, self.net.rows[:rows])
        body, headers = ask(self.port, self.path(form), request)
        if not self.contestant.answers:
            return
        given = bodies.answered(form, body, headers)
        if not bodies.near(given, self.net.logits[:rows], exact=self.contestant.precision == "fp32"):
            raise BenchmarkError(
                f"{self.contestant.name}, {self.net.name}: expected the network's logits of {rows} rows as "
                f"{form}, got {len(given)} values that begin with {given[:3]}"
            )


@contextlib.contextmanager
def serving(contestant: Contestant, net: Net) -> Iterator[Server]:
    """It, on a free port; all that it started is ended afterwards."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{contestant.name.replace(' ', '-')}-{net.name}.log"
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    with tempfile.TemporaryDirectory(prefix="turnpike-bench-") as scratch, log.open("wb") as told:
        begun = time.perf_counter()
        process = subprocess.Popen(
            contestant.command(net, port),
            cwd=contestant.folder,
            env=kept | contestant.told(net, port, Path(scratch)),
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
        server = Server(contestant, net, port, psutil.Process(process.pid))
        try:
            wait(server, process, log)
            server.started = time.perf_counter() - begun
            yield server
        finally:
            processes.end_all(server.process, END_SECONDS)


def wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the first right answer."""
    form = next(iter(server.contestant.forms))
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            server.check(form, 1)
        except SilentError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise BenchmarkError(
                    f"{server.contestant.name}, {server.net.name}: expected a right answer within "
                    f"{READY_SECONDS} s of its start, got: {error}; {log} may say why"
                ) from error
        else:
            return
        time.sleep(0.02)


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        port: int = one.getsockname()[1]
        return port
