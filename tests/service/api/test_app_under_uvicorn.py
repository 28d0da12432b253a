"""The application gives the same answers under uvicorn as under the service's own server."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.support.asgi import Reply
from tests.support.in_process_servers import ask, own_server, uvicorn_server
from tests.support.in_process_worker import (
    GATES,
    INFER,
    LESION,
    NAME,
    PREDICT,
    InProcessWorker,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
)

GENERATED_ID = re.compile(rb"[0-9a-f]{16}-[0-9a-f]+")
# Each server writes these itself.
CONNECTION_HEADERS = {"date", "connection", "keep-alive", "transfer-encoding"}
SETTINGS: dict[str, Any] = {
    "api_keys": ("open-sesame",),
    "admin_key": "master",
    "cors": ("https://one.example",),
    "max_body": 100_000,
    "max_rows": 300,
    "access_log": False,
}
KEY = {"X-Api-Key": "open-sesame", "Connection": "close"}
JSON = infer(rows(1))


def binary(count: int) -> bytes:
    """A request of this many rows in binary, for an answer in binary."""
    body, headers = binary_infer(rows(*range(count)), binary_data_output=True)
    return request(INFER, body, KEY | headers)


def post(path: str, body: bytes = JSON, **headers: object) -> bytes:
    return request(path, body, KEY | {name.replace("_", "-"): value for name, value in headers.items()})


def get(path: str, method: str = "GET", **headers: object) -> bytes:
    return request(
        path, b"", KEY | {name.replace("_", "-"): value for name, value in headers.items()}, method=method
    )


def chunked(path: str, body: bytes) -> bytes:
    length = b"Content-Length: %d" % len(body)
    head = post(path, body).partition(b"\r\n\r\n")[0].replace(length, b"Transfer-Encoding: chunked")
    return head + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


REQUESTS = {
    "infer": post(INFER),
    "infer of a version": post(f"/v2/models/{NAME}/versions/1/infer"),
    "infer of rows": post(INFER, infer(rows(*range(9)), id="nine")),
    "infer with a query": post(INFER + "?a=b"),
    "infer with an encoded path": post(INFER.replace("models", "mod%65ls")),
    "infer in chunks": chunked(INFER, JSON),
    "infer compressed": post(INFER, gzip.compress(JSON), Content_Encoding="gzip"),
    "infer in another encoding": post(INFER, JSON, Content_Encoding="br"),
    "infer that expects 100": post(INFER, JSON, Expect="100-continue"),
    "infer in HTTP/1.0": request(INFER, JSON, KEY, version="1.0"),
    "infer with its own id": post(INFER, JSON, X_Request_Id="my-own"),
    "infer with an invalid id": post(INFER, JSON, X_Request_Id="two words"),
    "infer with a trace": post(INFER, JSON, Traceparent=f"00-{'a' * 32}-{'b' * 16}-01"),
    "infer with an invalid timeout": post(INFER, JSON, X_Request_Timeout_Ms="soon"),
    "infer in binary": binary(3),
    "infer from another origin": post(INFER, JSON, Origin="https://one.example"),
    "infer of no model": post("/v2/models/nothing/infer"),
    "infer of no version": post(f"/v2/models/{NAME}/versions/7/infer"),
    "infer without a body": post(INFER, b""),
    "infer of broken JSON": post(INFER, JSON[:-1]),
    "infer of too large a body": post(INFER, JSON.ljust(100_001)),
    "infer of too large chunks": chunked(INFER, JSON.ljust(100_001)),
    "infer of too many rows": post(INFER, infer(rows(*range(301)))),
    "infer without a key": request(INFER, JSON, {"Connection": "close"}),
    "infer with a wrong key": post(INFER, JSON, X_Api_Key="sesame"),
    "infer by GET": get(INFER),
    "predict": post(PREDICT, json.dumps({"instances": rows(4, 5).tolist()}).encode()),
    "gates": post(GATES),
    "gates of many rows": post(GATES, infer(rows(*range(200)), parameters={"detail": "rows"})),
    "lesion": post(LESION, infer(rows(1, 2), close=["layer03.transform_gate"])),
    "lesion of no gate": post(LESION, infer(rows(1), close=["nowhere"])),
    "model": get(f"/v2/models/{NAME}"),
    "model by HEAD": get(f"/v2/models/{NAME}", "HEAD"),
    "model is ready": get(f"/v2/models/{NAME}/ready"),
    "model of TensorFlow's API": get(f"/v1/models/{NAME}"),
    "service": get("/v2"),
    "live": get("/v2/health/live"),
    "live by HEAD": get("/v2/health/live", "HEAD"),
    "live by DELETE": get("/v2/health/live", "DELETE"),
    "live with a body": post("/v2/health/live"),
    "dashboard": get("/", Accept="text/html"),
    "alive": get("/"),
    "OpenAPI document": get("/openapi.json"),
    "documentation": get("/docs"),
    "repository index": post("/v2/repository/index", b"{}"),
    "admin without the key": post(f"/v2/repository/models/{NAME}/unload", b"{}"),
    "metrics, which fail here": get("/metrics"),
    "nowhere": get("/nowhere"),
    "preflight": get(INFER, "OPTIONS", Origin="https://one.example", Access_Control_Request_Method="POST"),
    "preflight from elsewhere": get(INFER, "OPTIONS", Origin="https://two.example"),
}

Start = Callable[[InProcessWorker], AbstractAsyncContextManager[int]]


def comparable(reply: Reply) -> tuple[int | None, dict[str, str], bytes]:
    """The reply without its request id and the headers of the connection."""
    headers = {name: value for name, value in reply.headers.items() if name not in CONNECTION_HEADERS}
    headers["x-request-id"] = GENERATED_ID.sub(b"<id>", headers["x-request-id"].encode()).decode()
    return reply.status, headers, GENERATED_ID.sub(b"<id>", reply.body)


def answers(worker: InProcessWorker, server: Start) -> dict[str, Reply]:
    """A server's replies to all requests. Afterwards the application holds no request."""

    async def collect() -> dict[str, Reply]:
        async with server(worker) as port:
            return {name: await ask(port, data) for name, data in REQUESTS.items()}

    replies = asyncio.run(collect())
    assert worker.app.context.counters.in_flight == 0
    assert worker.app.context.budget.bytes == 0
    return replies


@pytest.fixture(scope="module")
def worker() -> InProcessWorker:
    return load_worker(**SETTINGS)


@pytest.fixture(scope="module")
def expected(worker: InProcessWorker) -> dict[str, Reply]:
    replies = answers(worker, own_server)
    statuses = {reply.status for reply in replies.values()}
    assert statuses >= {200, 400, 401, 404, 405, 413, 415, 500}
    return replies


def test_uvicorn_gives_the_same_answers(worker: InProcessWorker, expected: dict[str, Reply]) -> None:
    replies = answers(worker, uvicorn_server)
    for name, reply in replies.items():
        assert comparable(reply) == comparable(expected[name]), name
