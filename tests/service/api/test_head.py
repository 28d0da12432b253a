"""Every route that answers GET answers HEAD: with the same status and headers, and without a body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.support.in_process_servers import ask, own_server, uvicorn_server
from tests.support.in_process_worker import NAME, InProcessWorker, load_worker
from tests.support.one_worker import with_supervisor
from tests.support.route_table import route_table

PATH_VALUES = {"{model}": NAME, "{version}": "1", "{file}": "swagger-ui.css", "{file:path}": "main.js"}
# answers with counters and times have another length each time
VARYING_ENDS = ("/metrics", "/stats")

Start = Callable[[InProcessWorker], AbstractAsyncContextManager[int]]


@pytest.fixture(scope="module")
def worker() -> InProcessWorker:
    return with_supervisor(load_worker(access_log=False))


def paths(worker: InProcessWorker, *, get: bool) -> list[str]:
    """The paths of all routes that answer GET, or of all others."""
    table = route_table(worker.app)
    readable = {entry.path for entry in table if entry.method == "GET"}
    chosen = sorted(readable if get else {entry.path for entry in table} - readable)
    for name, value in PATH_VALUES.items():
        chosen = [path.replace(name, value) for path in chosen]
    return chosen


def raw(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


@pytest.mark.parametrize("server", [own_server, uvicorn_server])
def test_head_is_get_without_a_body(worker: InProcessWorker, server: Start) -> None:
    """This includes the length of the body that GET would have."""

    async def test() -> None:
        async with server(worker) as port:
            for path in paths(worker, get=True):
                got, head = [await ask(port, raw(method, path)) for method in ("GET", "HEAD")]
                assert (got.status, head.status) == (200, 200), path
                assert got.body, path
                assert head.body == b"", path
                for name in ("date", "x-request-id"):
                    assert head.headers.pop(name) != ""
                    del got.headers[name]
                if path.endswith(VARYING_ENDS):
                    assert int(head.headers.pop("content-length")) > 0
                    del got.headers["content-length"]
                    # one of the two may be just large enough to be compressed
                    for headers in (head.headers, got.headers):
                        headers.pop("vary", None)
                assert head.headers == got.headers, path

    assert len(paths(worker, get=True)) > 20
    asyncio.run(test())


def test_allow_lists_head(worker: InProcessWorker) -> None:
    """Allow lists HEAD where GET is allowed, and only there."""

    async def test() -> None:
        async with own_server(worker) as port:
            for get, allowed in ((True, "GET, HEAD"), (False, "POST")):
                for path in paths(worker, get=get):
                    for method in ("PUT",) if get else ("PUT", "HEAD"):
                        reply = await ask(port, raw(method, path))
                        assert (reply.status, reply.headers["allow"]) == (405, allowed), (method, path)

    assert len(paths(worker, get=False)) > 5
    asyncio.run(test())
