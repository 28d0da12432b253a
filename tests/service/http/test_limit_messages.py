"""Every limit that a setting changes: the error of a request over it names the setting."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import GATES, INFER, PREDICT, InProcessWorker, infer, request, rows, run
from turnpike.service.config.settings import Settings

INFER_REQUEST = request(INFER, infer(rows(1)))
# settings that limit a request, but for those that close the connection without an answer
LIMIT = re.compile(
    r"max_(?!batch|delay_ms|replicas).*|queue|timeout_ms|header_seconds|body_seconds|allowed_hosts"
)


async def reply_while_runs_are_blocked(worker: InProcessWorker) -> Reply:
    """The first reply to one of three clients, of which one runs and one waits."""
    with worker.blocked_runs():
        clients = [worker.connect() for _ in range(3)]
        for client in clients:
            client.send(INFER_REQUEST)
            await asyncio.sleep(0.01)
        while True:
            for client in clients:
                if reply := client.next_reply():
                    return reply
            await asyncio.sleep(0.001)


async def reply_while_a_body_is_held(worker: InProcessWorker) -> Reply:
    holder = worker.connect()
    holder.send(request(INFER, b"{}")[:-1])
    await asyncio.sleep(0)
    reply = await worker.connect().ask(request(INFER, b"{}"))
    holder.disconnect()
    return reply


async def reply_to_a_part_of_a_head(worker: InProcessWorker) -> Reply:
    client = worker.connect()
    client.send(b"GET / HTTP/1.1\r\n")
    client.connection.check_timeouts(asyncio.get_running_loop().time() + 2)
    return await client.wait_for_reply()


@dataclass(frozen=True)
class Case:
    """A request over a limit: the bytes to send, or a function that returns the reply."""

    status: int
    limit: Any
    exceed: bytes | Callable[[InProcessWorker], Awaitable[Reply]]
    settings: dict[str, Any] = field(default_factory=dict)


def predict(instances: Any) -> bytes:
    return request(PREDICT, json.dumps({"instances": instances}).encode())


CASES = {
    "allowed_hosts": Case(421, ("a.example",), INFER_REQUEST),
    "queue": Case(503, 1, reply_while_runs_are_blocked),
    "timeout_ms": Case(504, 1, reply_while_runs_are_blocked),
    "max_body": Case(413, 1, request(INFER, b"{}")),
    "max_inflate_ratio": Case(
        413, 200, request(INFER, gzip.compress(bytes(1 << 21)), {"Content-Encoding": "gzip"})
    ),
    "max_json": Case(413, 1, request(INFER, b"{}")),
    "max_held": Case(503, 2, reply_while_a_body_is_held, {"max_body": 2}),
    "max_rows": Case(400, 1, predict([[0] * 64] * 2)),
    "max_depth": Case(400, 4, predict([[[[[[0]]]]]])),
    "max_header": Case(431, 1024, b"GET /" + b"a" * 1024),
    "max_gates": Case(413, 1, request(GATES + "?detail=rows", infer(rows(1)))),
    "header_seconds": Case(408, 1, reply_to_a_part_of_a_head),
    "body_seconds": Case(408, 0.02, request(INFER, b"{}")[:-1]),
}


def test_all_limits_have_a_case() -> None:
    assert set(CASES) == {name for name in Settings.model_fields if LIMIT.fullmatch(name)}


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_the_setting_of_the_limit(name: str) -> None:
    """Whoever runs the service can change the limit; a client can tell them which."""
    case = CASES[name]

    async def scene(worker: InProcessWorker) -> None:
        exceed = case.exceed
        reply = await (worker.connect().ask(exceed) if isinstance(exceed, bytes) else exceed(worker))
        assert (reply.status, set(reply.json)) == (case.status, {"error"})
        assert re.findall(r"--[a-z-]+", reply.json["error"]) == [f"--{name.replace('_', '-')}"]

    run(scene, **case.settings, **{name: case.limit})
