"""FastAPI is imported when it is needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from tests.support.in_process_servers import ask, own_server
from tests.support.in_process_worker import NAME, load_worker


def test_routes_of_programs_need_no_fastapi() -> None:
    """FastAPI is created at the first request for another route, and once if several come together."""
    worker = load_worker(access_log=False)
    endpoint = worker.app._fastapi

    async def test() -> None:
        async with own_server(worker) as port:
            paths = (
                "/",
                "/v2",
                "/v2/health/ready",
                "/v2/health/live",
                f"/v2/models/{NAME}",
                f"/v2/models/{NAME}/ready",
            )
            for path in (*paths, "/v1/models", f"/v1/models/{NAME}", f"/v2/models/{NAME}/config"):
                assert (await ask(port, get(path))).status == 200
            assert (await ask(port, post("/v2/repository/index"))).status == 200
            assert endpoint._loaded is None
            replies = await asyncio.gather(*(ask(port, get("/docs")) for _ in range(4)))
            assert [reply.status for reply in replies] == [200] * 4
            assert endpoint._loaded is not None

    asyncio.run(test())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


def post(path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
    )


def test_a_worker_starts_without_fastapi() -> None:
    """Nor does it import the libraries of single routes."""
    code = "import sys, turnpike.service.process.worker, turnpike.service.api.app; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "turnpike.service.api.app" in modules
    assert not {"fastapi", "prometheus_client", "turnpike.service.api.openapi.schemas"}.intersection(modules)
