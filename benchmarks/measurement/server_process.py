"""Runs a contestant: starts it, waits until its answers are correct, and ends it with all its processes."""

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

import psutil

from benchmarks.contestants import wire_formats
from benchmarks.contestants.contestants import Contestant
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.contestants.wire_formats import EncodedRequest, WireFormat
from benchmarks.errors import BenchmarkError, FailedRequestError
from benchmarks.folders import LOGS
from benchmarks.measurement import h2load, processes
from benchmarks.measurement.wrk import HOST, post

READY_SECONDS = 60
# seconds between SIGTERM and SIGKILL
TERMINATION_SECONDS = 5
# prefixes of variables of our Python environment, which would change that of a rival
EXCLUDED_VARIABLES = ("PYTHON", "VIRTUAL_ENV", "TURNPIKE_")


@dataclass
class RunningServer:
    """A contestant that runs; `start_seconds` is the time from its start to its first correct answer."""

    contestant: Contestant
    network: BenchmarkNetwork
    port: int
    grpc_port: int
    process: psutil.Process
    start_seconds: float = 0

    def path(self, wire_format: WireFormat) -> str:
        return self.contestant.paths[wire_format].format(network=self.network.name)

    def url(self, wire_format: WireFormat) -> str:
        """Where requests of this wire format go."""
        port = self.grpc_port if wire_format == "v2 gRPC" else self.port
        return f"http://{HOST}:{port}{self.path(wire_format)}"

    def request(self, wire_format: WireFormat, row_count: int) -> EncodedRequest:
        """A request for the logits of the network's first rows."""
        return wire_formats.encode_request(wire_format, self.network.rows[:row_count], self.network.name)

    def answer(self, wire_format: WireFormat, row_count: int) -> tuple[bytes, dict[str, str]]:
        """Body and headers of the answer to such a request."""
        request = self.request(wire_format, row_count)
        if wire_format == "v2 gRPC":
            return h2load.call(self.url(wire_format), request), {}
        return post(self.port, self.path(wire_format), request)

    def check(self, wire_format: WireFormat, row_count: int) -> None:
        """Raise BenchmarkError unless it answers a request of this many rows with the network's logits."""
        body, headers = self.answer(wire_format, row_count)
        if not self.contestant.returns_logits:
            return
        logits = wire_formats.decode_logits(wire_format, body, headers)
        exact = self.contestant.precision == "fp32" and self.contestant.computes_in_fp32
        if not wire_formats.logits_match(logits, self.network.logits[:row_count], exact=exact):
            raise BenchmarkError(
                f"{self.contestant.name}, {self.network.name}: expected the network's logits of {row_count} "
                f"rows as {wire_format}, got {len(logits)} values that begin with {logits[:3]}"
            )


@contextlib.contextmanager
def running_server(contestant: Contestant, network: BenchmarkNetwork) -> Iterator[RunningServer]:
    """Run a contestant on a free port; all processes that it started are ended afterwards."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{contestant.name.replace(' ', '-')}-{network.name}.log"
    port, grpc_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="turnpike-bench-") as scratch, log.open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            contestant.command(network, port, grpc_port),
            cwd=contestant.folder,
            env=rival_variables() | contestant.environment(network, port, grpc_port, Path(scratch)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        server = RunningServer(contestant, network, port, grpc_port, psutil.Process(process.pid))
        try:
            wait_until_ready(server, process, log)
            server.start_seconds = time.perf_counter() - start
            yield server
        finally:
            processes.terminate_all(server.process, TERMINATION_SECONDS)


def rival_variables() -> dict[str, str]:
    """The environment variables of this process without those of its Python environment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(EXCLUDED_VARIABLES)}


def wait_until_ready(server: RunningServer, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the first correct answer; a wrong answer raises BenchmarkError at once."""
    wire_format = next(iter(server.contestant.paths))
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            server.check(wire_format, 1)
        except FailedRequestError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(
                    f"{server.contestant.name}, {server.network.name}: expected a correct answer within "
                    f"{READY_SECONDS} s of its start, got: {error}; see {log}"
                ) from error
        else:
            return
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Different ports that no process listens on at the moment."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((HOST, 0))
        return [listener.getsockname()[1] for listener in listeners]
