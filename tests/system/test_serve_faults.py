"""Faults with a real server: what clients see when workers die, requests are bad, or models are damaged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.support.digit_requests import BUNDLED_MODEL, INFER_PATH, binary_request, checked_requests
from tests.support.live_server import ROOT, Server, serving, worker_processes
from tests.support.load_clients import LoadGenerator
from tests.support.waiting import wait_until
from turnpike.service.repository.deployment import NEW

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers and small limits."""
    with serving("--workers", 2, "--max-body", 100_000, "--body-seconds", 2, "--header-seconds", 2) as one:
        yield one


def raw(server: Server, data: bytes, *, wait: float = 10) -> bytes:
    """The response to bytes that no client library would send."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(data)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
            head, end, body = got.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if end and length and len(body) >= int(length[1]):
                break
        return got


def test_batched_results_equal_unbatched_results(server: Server) -> None:
    """Thousands of requests over 32 connections, which are batched as they arrive."""
    load = LoadGenerator(server.url, checked_requests(64), 32)
    tally = asyncio.run(load.run(1.5))
    assert tally.lost == []
    assert tally.wrong == []
    assert set(tally.statuses) == {200}
    sizes = server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["batch_stats"]
    assert max(size["batch_size"] for size in sizes) > 8, "nothing was batched"


@pytest.mark.slow
def test_a_dead_worker_is_replaced(server: Server) -> None:
    """Only its current requests are lost."""
    before = {process.pid for process in worker_processes(server)}
    load = LoadGenerator(server.url, checked_requests(16), 8)

    async def scenario() -> None:
        running = asyncio.create_task(load.run(2))
        await asyncio.sleep(0.5)
        os.kill(min(before), signal.SIGKILL)
        await running

    asyncio.run(scenario())
    assert load.tally.wrong == []
    assert set(load.tally.statuses) == {200}
    # each connection has at most one request at a time, and connections of the other worker lose none
    assert 0 < len(load.tally.lost) <= 8
    wait_until(lambda: len(worker_processes(server)) == 2)
    assert {process.pid for process in worker_processes(server)} != before
    assert max(load.tally.good) - min(load.tally.good) > 1.5


def test_a_body_over_the_limit_is_refused_by_its_length(server: Server) -> None:
    """It gets 413 for its Content-Length, before any byte of the body was sent."""
    got = raw(
        server, f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n".encode()
    )
    assert got.startswith(b"HTTP/1.1 413")
    assert b"100000" in got


def test_a_body_without_a_length_is_refused_at_the_limit(server: Server) -> None:
    """A chunked body is cut off when it becomes too long."""
    head = f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    got = raw(server, head + chunk * 7)
    assert got.startswith(b"HTTP/1.1 413")


def test_a_web_page_cannot_call_the_service_by_dns_rebinding(server: Server) -> None:
    """The name of the page resolves to 127.0.0.1, so its requests arrive, but with another Host."""
    for _ in range(4):
        refused = server.get("/v2/models", headers={"Host": "evil.example"})
        assert refused.status_code == 421
        assert "got 'evil.example'" in refused.json()["error"]
        assert server.get("/v2/models", headers={"Host": "localhost:80"}).status_code == 200
        assert server.get("/v2/models").status_code == 200


@pytest.mark.slow
def test_a_slow_body_is_cut_off(server: Server) -> None:
    """A client that announces a body and does not send it gets 408."""
    got = raw(
        server, f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
    )
    assert got.startswith(b"HTTP/1.1 408")


@pytest.mark.slow
def test_slow_headers_are_cut_off(server: Server) -> None:
    """A client that never completes its headers loses its connection."""
    assert raw(server, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: -4\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_malformed_http_gets_a_json_error(server: Server, data: bytes) -> None:
    """Anything that is not a request gets a 4xx with an error in JSON, and the connection is closed."""
    counted = 'turnpike_http_requests_total{method="unknown",route="unknown",status="4'
    before = server.get("/metrics").text.count(counted)
    head, _, body = raw(server, data).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4"), head
    assert b"\r\nx-request-id: " in head
    assert set(orjson.loads(body)) == {"error"}
    assert server.get("/metrics").text.count(counted) >= max(before, 1)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing/here", 404),
        ("GET", INFER_PATH, 405),
        ("POST", "/v2/models/absent/infer", 404),
        ("POST", "/v2/models/digits-10/versions/77/infer", 404),
        ("POST", "/v2/models/..%2f..%2fetc/infer", 404),
        ("POST", INFER_PATH, 400),
        ("POST", "/v1/models/digits-10:predict", 400),
        ("POST", "/v2/models/digits-10/gates", 400),
        ("POST", "/v2/models/digits-10/lesion", 400),
        ("POST", "/v2/repository/models/digits-10/load", 403),
        ("POST", "/v2/repository/models/digits-10/unload", 403),
    ],
)
def test_errors_are_one_sentence_of_json(server: Server, method: str, path: str, status: int) -> None:
    """There is no HTML, no {"detail"}, no path and no traceback."""
    response = (server.post if method == "POST" else server.get)(path)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    for secret in ("Traceback", str(ROOT), "onnxruntime", "simdjson", ".py", "0x"):
        assert secret not in response.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("document", ["README.md", "docs/how-to/serve.md"])
def test_the_curl_command_of_the_docs_works(server: Server, document: str) -> None:
    """Only the port is changed."""
    (line,) = re.findall(r"^    (curl .*:predict .*)$", (ROOT / document).read_text(), re.MULTILINE)
    words = shlex.split(line.replace("http://127.0.0.1:8000", server.url))
    (prediction,) = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["predictions"]
    assert prediction["label"] == "0"
    assert prediction["probability"] > 0.9
    assert sum(prediction["probabilities"].values()) == pytest.approx(1)


def test_zero_rows_are_valid(server: Server) -> None:
    """A request with zero rows gets a result with zero rows."""
    body = {"inputs": [{"name": "x", "shape": [0, 1, 8, 8], "datatype": "FP32", "data": []}]}
    response = server.post(INFER_PATH, body)
    assert response.status_code == 200
    assert response.json()["outputs"][0]["shape"] == [0, 10]
    assert response.json()["outputs"][0]["data"] == []


def test_nan_is_valid_as_binary_and_an_error_as_json(server: Server) -> None:
    """NaN inputs give NaN outputs as binary data. As JSON the result is 422."""
    values = np.full((1, 1, 8, 8), np.nan, np.float32)
    body, headers = binary_request(values)
    response = server.post(INFER_PATH, body, headers=dict(headers))
    assert response.status_code == 200
    assert np.isnan(np.frombuffer(response.content[-40:], np.float32)).all()
    asked = body.replace(b"true", b"false", 1)
    length = int(headers[0][1]) + 1
    response = server.post(INFER_PATH, asked, headers={"Inference-Header-Content-Length": str(length)})
    assert response.status_code == 422
    assert "binary" in response.json()["error"]


def test_a_deadline_that_has_passed_is_504(server: Server) -> None:
    """A request that may wait for one microsecond is not run."""
    body = {
        "parameters": {"timeout": 1},
        "inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}],
    }
    before = server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["inference_count"]
    assert server.post(INFER_PATH, body).status_code == 504
    assert server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["inference_count"] == before


@pytest.mark.slow
def test_a_bad_file_leaves_the_old_version_in_service(tmp_path: Path) -> None:
    """A file that cannot be loaded is in the index and in a gauge, and gets no requests.

    Until a second scan has found it, it is only new.
    """
    shutil.copytree(BUNDLED_MODEL.parent.parent, tmp_path / "digits-10")
    with serving("--models", tmp_path, "--poll", 0.2, "--workers", 2, TURNPIKE_ADMIN_KEY="k") as server:
        bad = tmp_path / "digits-10/2"
        bad.mkdir()
        (bad / "model.onnx").write_bytes(BUNDLED_MODEL.read_bytes()[:5000])

        index: list[dict[str, str]] = []

        def is_refused() -> bool:
            index[:] = server.post("/v2/repository/index").json()
            states = [entry["state"] for entry in index]
            return states == ["READY", "UNAVAILABLE"] and index[1]["reason"] != NEW

        # a worker that is still loading the file says LOADING, and either worker may answer
        wait_until(is_refused)
        old, new = index
        assert (old["version"], new["version"]) == ("1", "2")
        assert new["reason"]
        assert str(tmp_path) not in new["reason"]
        assert server.get("/v2/models/digits-10/ready").status_code == 200
        assert server.get("/v2/health/ready").status_code == 200
        assert 'version="2"' in server.get("/metrics").text
        shutil.copy(BUNDLED_MODEL, bad / "model.onnx")
        wait_until(lambda: server.get("/v2/models/digits-10").json()["versions"] == ["2"])


def test_load_and_unload_reach_every_worker(tmp_path: Path) -> None:
    """After the response no worker serves an unloaded model, and all serve a loaded one."""
    shutil.copytree(BUNDLED_MODEL.parent.parent, tmp_path / "digits-10")
    key = {"X-Api-Key": "secret"}
    with serving("--models", tmp_path, "--workers", 3, TURNPIKE_ADMIN_KEY="secret") as server:

        def states() -> set[int]:
            # a new connection for each, so that every worker is likely to get one
            return {server.get("/v2/models/digits-10/ready").status_code for _ in range(20)}

        assert states() == {200}
        assert server.post("/v2/repository/models/digits-10/unload", headers=key).status_code == 200
        assert states() == {503}
        assert server.post("/v2/repository/models/digits-10/load", headers=key).status_code == 200
        assert states() == {200}
        assert server.post("/v2/repository/models/absent/load", headers=key).status_code == 404
        assert server.post("/v2/repository/models/digits-10/unload").status_code == 401


@pytest.mark.parametrize("fresh", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sigterm_under_load_loses_nothing(fresh: bool) -> None:
    """Every request that was sent is answered, on kept connections and on new ones, with exit status 0."""
    with serving("--workers", 2, "--drain-wait", 0.3) as server:
        load = LoadGenerator(server.url, checked_requests(16), 8, fresh=fresh)

        async def scenario() -> None:
            running = asyncio.create_task(load.run(20))
            await asyncio.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            while server.process.poll() is None:
                await asyncio.sleep(0.01)
            load.stopping = True
            await running

        asyncio.run(scenario())
    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert set(load.tally.statuses) <= {200}
    assert load.tally.good


@pytest.mark.slow
def test_draining_is_not_ready_before_the_port_closes() -> None:
    """A load balancer sees 503 while requests are still answered."""
    with serving("--drain-wait", 2) as server:
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/v2/health/ready").status_code == 503, 2)
        assert server.get("/v2/health/live").status_code == 200
        response = server.get("/v2/models/digits-10")
        assert response.status_code == 200
        assert response.headers["Connection"].lower() == "close"
        wait_until(lambda: server.process.poll() is not None)


@pytest.mark.slow
def test_requests_of_a_disconnected_client_are_not_run() -> None:
    """Its waiting request is dropped, and another one in the queue is answered."""
    body = orjson.dumps(
        {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}]}
    )
    head = f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving("--max-delay-ms", 1500) as server:
        host, port = server.url.removeprefix("http://").split(":")
        leaving = socket.create_connection((host, int(port)))
        leaving.sendall(head + body)
        with socket.create_connection((host, int(port))) as staying:
            staying.sendall(head + body)
            time.sleep(0.3)
            leaving.close()
            assert staying.recv(65536).startswith(b"HTTP/1.1 200")
        statistics = server.get("/v2/models/digits-10/stats").json()["model_stats"][0]
        assert statistics["inference_count"] == 1
        assert [size["batch_size"] for size in statistics["batch_stats"]] == [1]
        assert 'turnpike_model_failures_total{model="digits-10",reason="gone"' in server.get("/metrics").text


@pytest.mark.slow
def test_a_refused_client_that_retries_at_once_is_delayed() -> None:
    """Its connection is read after a pause if it ignores Retry-After, so that refusals cost little."""
    many = checked_requests(4, sizes=(1,))
    with serving("--queue", 1, "--max-delay-ms", 300) as server:
        tally = asyncio.run(LoadGenerator(server.url, many, 16).run(3))
    assert set(tally.statuses) == {200, 503}
    # without a pause each of 14 connections would be refused hundreds of times a second
    assert tally.statuses[503] < 14 * 3 * 6


@pytest.mark.slow
def test_gates_as_outputs_of_infer_have_the_same_limit() -> None:
    """All gates for many rows are refused before the run; a few gates are returned."""
    gates = [{"name": f"layer{layer:02d}.transform_gate"} for layer in range(10)]
    row = {"name": "x", "shape": [256, 1, 8, 8], "datatype": "FP32", "data": [0] * 64 * 256}
    with serving("--max-gates", 400_000) as server:
        refused = server.post(INFER_PATH, {"inputs": [row], "outputs": gates})
        assert refused.status_code == 413
        assert "at most 400000 bytes of gates" in refused.json()["error"]
        assert server.post(INFER_PATH, {"inputs": [row], "outputs": gates[:1]}).status_code == 200


@pytest.mark.slow
def test_unread_responses_are_limited() -> None:
    """Clients that request much and read nothing are refused in the end, and others are answered."""
    values = np.zeros((4000, 1, 8, 8), np.float32)
    head = (
        f'{{"inputs":[{{"name":"x","shape":{list(values.shape)},"datatype":"FP32",'
        f'"parameters":{{"binary_data_size":{values.nbytes}}}}}],'
        '"outputs":[{"name":"layer00.transform_gate"},{"name":"layer01.transform_gate"}]}'
    ).encode()
    body = head + values.tobytes()
    wire = (
        f"POST {INFER_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
    ).encode() + body
    limits = ("--max-body", 2_000_000, "--max-held", 20_000_000, "--idle-seconds", 4)
    with serving(*limits) as server, contextlib.ExitStack() as stack:
        host, port = server.url.removeprefix("http://").split(":")
        for _ in range(8):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(wire)
        refusals = 'turnpike_requests_refused_total{reason="overloaded"}'
        wait_until(lambda: refusals in server.get("/metrics").text)
        assert server.post("/v1/models/digits-10:predict", {"instances": [[0] * 64]}).status_code == 200
        # the clients are disconnected, and their memory is free again
        headers = {"Inference-Header-Content-Length": str(len(head))}
        wait_until(
            lambda: server.post(INFER_PATH, body, headers=headers).ok,
            30,
        )


@pytest.mark.slow
def test_a_new_version_appears_by_itself(tmp_path: Path) -> None:
    """With the default settings, and not before its file is complete, however slowly it is written."""
    shutil.copytree(BUNDLED_MODEL.parent.parent, tmp_path / "digits-10")
    with serving(tmp_path) as server:

        def state_of_second() -> tuple[str, str]:
            entries = server.post("/v2/repository/index").json()
            return next(((e["state"], e["reason"]) for e in entries if e["version"] == "2"), ("", ""))

        folder = tmp_path / "digits-10/2"
        folder.mkdir()
        content = BUNDLED_MODEL.read_bytes()
        with (folder / "model.onnx").open("wb", buffering=0) as file:
            for start in range(0, len(content), 40_000):
                file.write(content[start : start + 40_000])
                time.sleep(0.5)
                assert state_of_second() in (("", ""), ("UNAVAILABLE", NEW))
        assert state_of_second() == ("UNAVAILABLE", NEW)
        assert "turnpike_model_load_failed{" not in server.get("/metrics").text
        wait_until(lambda: server.get("/v2/models/digits-10").json()["versions"] == ["2"])
        assert state_of_second() == ("READY", "")
