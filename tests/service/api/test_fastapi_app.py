"""FastAPI is imported when it is needed, and its errors become sentences."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from service.api.fastapi_app import first_invalid_field
from tests.support.in_process_servers import ask, own_server
from tests.support.in_process_worker import NAME, load_worker


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            {"type": "literal_error", "msg": "Input should be 'a' or 'b'", "input": "c"},
            "query.detail: expected 'a' or 'b', got 'c'",
        ),
        (
            {"type": "missing", "msg": "Field required", "input": None},
            "query.detail: expected a value, got none",
        ),
        ({"type": "odd", "msg": "Value error, /tmp/x", "input": "c"}, "query.detail: expected another value"),
        (
            {"type": "int_parsing", "msg": "Input should be a valid integer", "input": "9" * 500},
            f"query.detail: expected a valid integer, got {'9' * 80!r}",
        ),
    ],
)
def test_validation_errors_become_one_message(entry: dict[str, Any], sentence: str) -> None:
    assert first_invalid_field(RequestValidationError([{"loc": ("query", "detail"), **entry}])) == sentence


def test_routes_of_programs_need_no_fastapi() -> None:
    """FastAPI is created at the first request for another route, and once if several come together."""
    worker = load_worker(access_log=False)
    endpoint = worker.app._fastapi

    async def test() -> None:
        async with own_server(worker) as port:
            paths = (
                "/v2",
                "/v2/health/ready",
                "/v2/health/live",
                f"/v2/models/{NAME}",
                f"/v2/models/{NAME}/ready",
            )
            for path in (*paths, "/v1/models", f"/v1/models/{NAME}", f"/v2/models/{NAME}/config"):
                assert (await ask(port, get(path))).status == 200
            assert endpoint._loaded is None
            replies = await asyncio.gather(*(ask(port, get("/docs")) for _ in range(4)))
            assert [reply.status for reply in replies] == [200] * 4
            assert endpoint._loaded is not None

    asyncio.run(test())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()


def test_a_worker_starts_without_fastapi() -> None:
    """Nor does it import the libraries of single routes."""
    code = "import sys, service.process.worker, service.api.app; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "service.api.app" in modules
    assert not {"fastapi", "prometheus_client", "service.api.openapi.schemas"}.intersection(modules)
