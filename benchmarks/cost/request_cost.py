"""Counts the Python instructions and C calls that one request costs in a worker, and compares with a record.

Counts do not depend on the speed or the load of the machine, so they show one added function call, which a
measurement of time would not. They do depend on the version of Python, which the record names.

A request goes over a socket to a whole worker in this process, with everything on that is on by default.
Counting starts when the connection has the request's bytes, and ends before the next request's bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import uvloop

from benchmarks.errors import BenchmarkError
from benchmarks.folders import RESULTS
from benchmarks.measurement.wrk import HOST
from benchmarks.results.tables import markdown_table
from tests.support.gates_client import profile_of
from tests.support.in_process_worker import NoSupervisor
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.common.durable_files import replacing
from turnpike.service.api.app import Application
from turnpike.service.batching import batcher
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server
from turnpike.service.repository.deployment import Deployment
from turnpike.service.telemetry.log_writer import log_writer

RECORD = RESULTS / "request_cost.json"
# a count may exceed the record by this share: room for a few calls, which a change may be worth
MAX_INCREASE = 0.05
# requests that are answered before counting starts, so that caches are filled
WARM_UP_REQUESTS = 20
# requests that are counted; the median leaves out those that coincide with a worker's work of each second
COUNTED_REQUESTS = 30
# nanoseconds that no run takes: a longer run would go to another thread, whose instructions are not counted
UNREACHABLE_RUN_NS = 10**12

COUNT_NAMES = {"instructions": "instructions", "c_calls": "C calls"}


@dataclass(frozen=True)
class RequestCost:
    """The cost of one request: `instructions` of Python's bytecode, and `c_calls` of C functions."""

    instructions: float
    c_calls: float


@dataclass
class CallCounter:
    """Counts instructions and C calls of this thread, in one bin for each request.

    A request begins where a protocol's `data_received` is called.
    """

    instructions: list[int] = field(default_factory=lambda: [0])
    c_calls: list[int] = field(default_factory=lambda: [0])

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.settrace(self._trace_call)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    def median_cost(self) -> RequestCost:
        """The median over all requests except the last, whose counts include what comes after it."""
        return RequestCost(median(self.instructions[1:-1]), median(self.c_calls[1:-1]))

    def _trace_call(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_name == "data_received":
            self.instructions.append(0)
            self.c_calls.append(0)
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._trace_opcode

    def _trace_opcode(self, frame: FrameType, event: str, argument: object) -> Any:
        self.instructions[-1] += event == "opcode"
        return self._trace_opcode

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        self.c_calls[-1] += event == "c_call"


def one_row_requests() -> dict[str, bytes]:
    """The bytes of each measured request by its kind; all have the same single row."""
    row = np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4)
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
    body = json.dumps({"inputs": [tensor | {"data": row.ravel().tolist()}]}).encode()
    head = json.dumps(
        {
            "inputs": [tensor | {"parameters": {"binary_data_size": row.nbytes}}],
            "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
        }
    ).encode()
    return {
        "JSON": encode_post("infer", body, "Content-Type: application/json"),
        "binary": encode_post("infer", head + row.tobytes(), f"Inference-Header-Content-Length: {len(head)}"),
        "gates": encode_post("gates", body, "Content-Type: application/json"),
    }


def encode_post(action: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST /v2/models/net/{action} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def running_worker(folder: Path) -> AsyncIterator[int]:
    """Run a worker that serves a small highway network with gates and profile; yields its port."""
    network = highway()
    rows = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    profile = profile_of(network.gates, network.gate_values(rows))
    version = put_model(folder, data=with_manifest(network, profile=profile))
    settings: dict[str, Any] = {"models": folder, "drain_wait": 0}
    app = Application(Settings(**settings), NoSupervisor())
    deployment = Deployment(serial=1, models={"net": (version,)})
    prepared = await app.registry.prepare(deployment.to_json())
    if prepared["failed"]:
        raise BenchmarkError(f"worker: expected a loaded network, got {prepared['failed']}")
    await app.registry.commit(deployment.to_json())
    listener = listen(HOST, 0)
    timing = DrainTiming(handshake=0.02, quiet=0.05)
    server = Server(app.context.settings, SharedPort(listener, ConnectionCounts(1)), 1, app, timing)
    try:
        yield listener.getsockname()[1]
    finally:
        stopped = asyncio.Event()
        stopped.set()
        await server.drain(stopped)


def send_requests(connection: socket.socket, request: bytes, count: int) -> None:
    """Send the request `count` times, each after the answer to the one before."""
    with connection.makefile("rb") as reader:
        for _ in range(count):
            connection.sendall(request)
            status = reader.readline()
            if status != b"HTTP/1.1 200 OK\r\n":
                raise BenchmarkError(f"worker: expected an answer with 200, got {status!r}")
            length = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            reader.read(length)


def count_request(request: bytes) -> RequestCost:
    """The cost of one request in a worker that has answered others before."""

    async def count(folder: Path) -> RequestCost:
        counter = CallCounter()
        async with running_worker(folder) as port:
            with socket.create_connection((HOST, port)) as connection:
                await asyncio.to_thread(send_requests, connection, request, WARM_UP_REQUESTS)
                with counter.counting():
                    await asyncio.to_thread(send_requests, connection, request, COUNTED_REQUESTS)
        return counter.median_cost()

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(batcher, "SHORT_RUN_NS", UNREACHABLE_RUN_NS),
        # lines of the access log are written, but not among the benchmark's output
        Path(os.devnull).open("wb") as devnull,
        patch.object(log_writer, "descriptor", devnull.fileno()),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        cost = runner.run(count(Path(folder)))
        log_writer.flush()
        return cost


def count_requests() -> dict[str, RequestCost]:
    """The cost of each kind of request."""
    return {kind: count_request(request) for kind, request in one_row_requests().items()}


def python_version() -> str:
    """Major and minor version: what the number of instructions depends on."""
    return ".".join(platform.python_version_tuple()[:2])


def write_record(costs: Mapping[str, RequestCost], path: Path = RECORD) -> None:
    """Write the costs as the record with which later runs are compared."""
    record = {"python": python_version(), "requests": {kind: asdict(cost) for kind, cost in costs.items()}}
    with replacing(path) as draft:
        draft.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_record(path: Path = RECORD) -> dict[str, RequestCost]:
    """The recorded costs; BenchmarkError if they are of another Python."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{path}: expected recorded costs, got {error}; --record writes them") from error
    if record["python"] != python_version():
        raise BenchmarkError(f"{path}: expected to run on Python {record['python']}, got {python_version()}")
    return {kind: RequestCost(**cost) for kind, cost in record["requests"].items()}


def increases(costs: Mapping[str, RequestCost], record: Mapping[str, RequestCost]) -> list[str]:
    """A sentence for each count that exceeds its record by more than MAX_INCREASE."""
    sentences = []
    for kind, cost in costs.items():
        for name, count in asdict(cost).items():
            limit = asdict(record[kind])[name] * (1 + MAX_INCREASE)
            if count > limit:
                sentences.append(
                    f"{kind}: expected at most {limit:,.0f} {COUNT_NAMES[name]} "
                    f"({MAX_INCREASE:.0%} above the record), got {count:,.0f}"
                )
    return sentences


def cost_table(costs: Mapping[str, RequestCost], record: Mapping[str, RequestCost]) -> str:
    """Counts beside the recorded ones, as a Markdown table."""
    rows = []
    for kind, cost in costs.items():
        row = [kind]
        for name, count in asdict(cost).items():
            recorded = asdict(record[kind])[name]
            row += [f"{count:,.0f}", f"{recorded:,.0f}", f"{count / recorded - 1:+.1%}"]
        rows.append(row)
    columns = [head for name in COUNT_NAMES.values() for head in (name, "recorded", "change")]
    return markdown_table(["request", *columns], rows)


def run(*, record: bool) -> None:
    """Print the costs beside the record; exit with status 1 if one of them exceeds it too far.

    With `record`, write the costs as the new record first.
    """
    if record:
        costs = count_requests()
        write_record(costs)
        recorded: Mapping[str, RequestCost] = costs
    else:
        recorded = read_record()
        costs = count_requests()
    print(cost_table(costs, recorded))
    if exceeded := increases(costs, recorded):
        raise BenchmarkError("; ".join(exceeded))
