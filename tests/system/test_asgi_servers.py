"""The service under ASGI servers that others make, in real processes."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.asgi_servers import COMMANDS, AsgiServer, asgi_server
from tests.support.bundled_requests import BODY, INFER, NAME
from tests.support.waiting import wait_until

APP = "turnpike.service.asgi:app"
READY = "/v2/health/ready"


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_works_under_it(name: str, tmp_path: Path) -> None:
    """Predictions, errors, large bodies, the page and counters; and it stops without complaints."""
    with asgi_server(name, APP, tmp_path, alive=READY) as server:
        assert server.get("/v2/models").json() == {"models": [NAME]}
        assert len(server.post(INFER, BODY).json()["outputs"][0]["data"]) == 10
        rows = {"inputs": [{**BODY["inputs"][0], "shape": [500, 1, 8, 8], "data": [1.0] * 500 * 64}]}
        assert server.post(INFER, rows).json()["outputs"][0]["shape"] == [500, 10]
        assert list(server.post(INFER, {}).json()) == ["error"]
        gates = server.post(f"/v2/models/{NAME}/gates", {**BODY, "values": True})
        assert gates.status_code == 200
        page = server.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
        assert "<title>" in page.text
        assert server.get("/openapi.json").json()["info"]["title"] == "turnpike"
        assert f'turnpike_model_rows_total{{model="{NAME}",version="1"}} 502.0' in server.get("/metrics").text
        assert server.stop() in (0, -15)
    log = server.log.read_text()
    assert "Traceback" not in log
    assert "never awaited" not in log


def test_a_request_that_has_begun_is_answered_after_sigterm(tmp_path: Path) -> None:
    """The models stay until uvicorn has answered its last request."""
    with asgi_server("uvicorn", APP, tmp_path, alive=READY) as server:
        body = json.dumps(BODY).encode()
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            connection.sendall(head + body[:100])
            # the request has begun when this one, which came later, has been answered
            assert server.get(READY).status_code == 200
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "Shutting down" in server.log.read_text())
            connection.sendall(body[100:])
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        assert server.process.wait(30) in (0, -15)


def test_several_processes_of_uvicorn_answer(tmp_path: Path) -> None:
    """Each has its own models and counters, which the documentation says."""
    with asgi_server("uvicorn", APP, tmp_path, "--workers", "2", alive=READY) as server:
        seen = set()

        def all_seen() -> bool:
            seen.add(_start_time(server))
            return len(seen) == 2

        wait_until(all_seen)


def _start_time(server: AsgiServer) -> str:
    time.sleep(0.01)
    text = server.get("/metrics").text
    return next(line for line in text.splitlines() if line.startswith("turnpike_start_time_seconds"))
