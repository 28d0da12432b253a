"""The service under every fault, for real: what is promised is what a client sees."""

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
import psutil
import pytest

from service.artifact.runtime import open_model
from tests.support.live_server import ROOT, Server, serving
from tests.support.load_clients import ClientRequest, LoadGenerator

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT = ROOT / "service/default/digits-10/1/model.onnx"
INFER = "/v2/models/digits-10/infer"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers and small limits."""
    with serving("--workers", 2, "--max-body", 100_000, "--body-seconds", 2, "--header-seconds", 2) as one:
        yield one


def binary(given: Array, parameters: str = "") -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """A binary request for binary answers."""
    head = (
        f'{{"parameters":{{"binary_data_output":true{parameters}}},"inputs":[{{"name":"x",'
        f'"shape":{list(given.shape)},"datatype":"FP32","parameters":{{"binary_data_size":{given.nbytes}}}}}]}}'
    ).encode()
    return head + given.tobytes(), (("Inference-Header-Content-Length", str(len(head))),)


def shots(count: int, path: Path = DEFAULT, sizes: tuple[int, ...] = (1, 2, 3, 5, 8)) -> list[ClientRequest]:
    """Requests of different rows and sizes, each of which knows its own answer to the last bit."""
    runtime = open_model(path)
    generator = np.random.default_rng(0)
    made = []
    for number in range(count):
        given = generator.integers(0, 17, (sizes[number % len(sizes)], 1, 8, 8)).astype(np.float32)
        expected = runtime.run({"x": given})[0].tobytes()
        body, headers = binary(given)
        made.append(ClientRequest(INFER, body, headers, expecting(expected, number)))
    return made


def expecting(expected: bytes, number: int) -> Any:
    return lambda body: None if body.endswith(expected) else f"request {number} got another answer"


def raw(server: Server, data: bytes, *, wait: float = 10) -> bytes:
    """What comes back for bytes that no client library would send."""
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


def workers(server: Server) -> list[psutil.Process]:
    """The worker processes of a server."""
    return psutil.Process(server.process.pid).children()


def until(condition: Any, seconds: float = 20) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.05)


def test_every_answer_is_that_of_the_request_alone(server: Server) -> None:
    """Two thousand requests over 32 connections, batched as they come: each gets its own bits."""
    load = LoadGenerator(server.url, shots(64), 32)
    tally = asyncio.run(load.run(3))
    assert tally.lost == []
    assert tally.wrong == []
    assert set(tally.statuses) == {200}
    sizes = server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["batch_stats"]
    assert max(size["batch_size"] for size in sizes) > 8, "nothing was batched"


def test_a_dead_worker_is_replaced_and_the_others_go_on(server: Server) -> None:
    """Only what the dead one had in hand is lost."""
    before = {process.pid for process in workers(server)}
    load = LoadGenerator(server.url, shots(16), 8)

    async def story() -> None:
        running = asyncio.create_task(load.run(3))
        await asyncio.sleep(0.7)
        os.kill(min(before), signal.SIGKILL)
        await running

    asyncio.run(story())
    assert load.tally.wrong == []
    assert set(load.tally.statuses) == {200}
    # a connection has one request under way at most, and those of the other worker have lost none
    assert 0 < len(load.tally.lost) <= 8
    until(lambda: len(workers(server)) == 2)
    assert {process.pid for process in workers(server)} != before
    assert max(load.tally.good) - min(load.tally.good) > 2.5


def test_a_body_over_the_limit_is_refused_by_what_it_says(server: Server) -> None:
    """413 comes from Content-Length alone, before a byte of the body was sent."""
    got = raw(server, f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 413")
    assert b"100000" in got


def test_a_body_without_a_length_is_refused_at_the_limit(server: Server) -> None:
    """A chunked body is cut off when it has grown too long."""
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    got = raw(server, head + chunk * 7)
    assert got.startswith(b"HTTP/1.1 413")


def test_a_dripping_body_is_cut_off(server: Server) -> None:
    """A client that promises a body and sends none of it gets 408 in its time."""
    got = raw(server, f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert got.startswith(b"HTTP/1.1 408")


def test_dripping_headers_are_cut_off(server: Server) -> None:
    """A client that never ends its headers does not keep its connection."""
    assert raw(server, b"GET /v2 HTTP/1.1\r\nHost: x\r\nX-Slow: ").startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_no_http_is_answered_as_json(server: Server, data: bytes) -> None:
    """Whatever is no request gets a 4xx with an error in JSON, and the connection ends."""
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
        ("GET", INFER, 405),
        ("POST", "/v2/models/absent/infer", 404),
        ("POST", "/v2/models/digits-10/versions/77/infer", 404),
        ("POST", "/v2/models/..%2f..%2fetc/infer", 404),
        ("POST", INFER, 400),
        ("POST", "/v1/models/digits-10:predict", 400),
        ("POST", "/v2/models/digits-10/gates", 400),
        ("POST", "/v2/models/digits-10/lesion", 400),
        ("POST", "/v2/repository/models/digits-10/load", 403),
        ("POST", "/v2/repository/models/digits-10/unload", 403),
    ],
)
def test_refusals_are_one_sentence_of_json(server: Server, method: str, path: str, status: int) -> None:
    """No HTML, no {"detail"}, no path and no traceback."""
    answer = (server.post if method == "POST" else server.get)(path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    for secret in ("Traceback", str(ROOT), "onnxruntime", "simdjson", ".py", "0x"):
        assert secret not in answer.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
@pytest.mark.parametrize("document", ["README.md", "docs/how-to/serve.md"])
def test_the_curl_line_of_the_documents_works(server: Server, document: str) -> None:
    """Word for word, but for the port."""
    (line,) = re.findall(r"^    (curl .*:predict .*)$", (ROOT / document).read_text(), re.MULTILINE)
    words = shlex.split(line.replace("http://127.0.0.1:8000", server.url))
    (prediction,) = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["predictions"]
    assert prediction["label"] == "0"
    assert prediction["probability"] > 0.9
    assert sum(prediction["probabilities"].values()) == pytest.approx(1)


def test_no_rows_are_no_error(server: Server) -> None:
    """A request of zero rows has an answer of zero rows."""
    body = {"inputs": [{"name": "x", "shape": [0, 1, 8, 8], "datatype": "FP32", "data": []}]}
    answer = server.post(INFER, body)
    assert answer.status_code == 200
    assert answer.json()["outputs"][0]["shape"] == [0, 10]
    assert answer.json()["outputs"][0]["data"] == []


def test_infinity_stays_what_it_is_in_binary_and_is_no_json(server: Server) -> None:
    """NaN in, NaN out in binary; the same answer as JSON is 422."""
    given = np.full((1, 1, 8, 8), np.nan, np.float32)
    body, headers = binary(given)
    answer = server.post(INFER, body, headers=dict(headers))
    assert answer.status_code == 200
    assert np.isnan(np.frombuffer(answer.content[-40:], np.float32)).all()
    asked = body.replace(b"true", b"false", 1)
    length = int(headers[0][1]) + 1
    answer = server.post(INFER, asked, headers={"Inference-Header-Content-Length": str(length)})
    assert answer.status_code == 422
    assert "binary" in answer.json()["error"]


def test_a_deadline_that_has_passed_is_504(server: Server) -> None:
    """A request that may wait for a microsecond is not run."""
    body = {
        "parameters": {"timeout": 1},
        "inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}],
    }
    before = server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["inference_count"]
    assert server.post(INFER, body).status_code == 504
    assert server.get("/v2/models/digits-10/stats").json()["model_stats"][0]["inference_count"] == before


def test_a_bad_file_leaves_the_old_version_serving(tmp_path: Path) -> None:
    """What cannot be loaded shows in the index and in a gauge, and takes no traffic."""
    shutil.copytree(DEFAULT.parent.parent, tmp_path / "digits-10")
    with serving("--models", tmp_path, "--poll", 0.2, "--workers", 2, TURNPIKE_ADMIN_KEY="k") as server:
        bad = tmp_path / "digits-10/2"
        bad.mkdir()
        (bad / "model.onnx").write_bytes(DEFAULT.read_bytes()[:5000])

        index: list[dict[str, str]] = []

        def refused() -> bool:
            index[:] = server.post("/v2/repository/index").json()
            return [one["state"] for one in index] == ["READY", "UNAVAILABLE"]

        # a worker that is still at the file says LOADING, and any of the two may answer
        until(refused)
        old, new = index
        assert (old["version"], new["version"]) == ("1", "2")
        assert new["reason"]
        assert str(tmp_path) not in new["reason"]
        assert server.get("/v2/models/digits-10/ready").status_code == 200
        assert server.get("/v2/health/ready").status_code == 200
        assert 'version="2"' in server.get("/metrics").text
        shutil.copy(DEFAULT, bad / "model.onnx")
        until(lambda: server.get("/v2/models/digits-10").json()["versions"] == ["2"])


def test_load_and_unload_reach_every_worker(tmp_path: Path) -> None:
    """After the answer no worker serves what was unloaded, and all serve what was loaded."""
    shutil.copytree(DEFAULT.parent.parent, tmp_path / "digits-10")
    key = {"X-Api-Key": "secret"}
    with serving("--models", tmp_path, "--workers", 3, TURNPIKE_ADMIN_KEY="secret") as server:

        def states() -> set[int]:
            # each on a connection of its own, so that every worker is likely to be asked
            return {server.get("/v2/models/digits-10/ready").status_code for _ in range(20)}

        assert states() == {200}
        assert server.post("/v2/repository/models/digits-10/unload", headers=key).status_code == 200
        assert states() == {503}
        assert server.post("/v2/repository/models/digits-10/load", headers=key).status_code == 200
        assert states() == {200}
        assert server.post("/v2/repository/models/absent/load", headers=key).status_code == 404
        assert server.post("/v2/repository/models/digits-10/unload").status_code == 401


@pytest.mark.parametrize("fresh", [False, True])
def test_sigterm_under_load_loses_nothing(fresh: bool) -> None:
    """Every request that was sent is answered, on connections that stay and on new ones; exit status 0."""
    with serving("--workers", 2, "--drain-wait", 0.3) as server:
        load = LoadGenerator(server.url, shots(16), 8, fresh=fresh)

        async def story() -> None:
            running = asyncio.create_task(load.run(20))
            await asyncio.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            while server.process.poll() is None:
                await asyncio.sleep(0.01)
            load.stopping = True
            await running

        asyncio.run(story())
    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert set(load.tally.statuses) <= {200}
    assert load.tally.good


def test_readiness_turns_before_the_port_closes() -> None:
    """A balancer sees 503 while requests are still answered."""
    with serving("--drain-wait", 2) as server:
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.get("/v2/health/ready").status_code == 503, 2)
        assert server.get("/v2/health/live").status_code == 200
        answer = server.get("/v2/models/digits-10")
        assert answer.status_code == 200
        assert answer.headers["Connection"].lower() == "close"
        until(lambda: server.process.poll() is not None)


def test_a_client_that_has_gone_is_not_run_for() -> None:
    """What it asked is dropped while it waits; the request beside it is answered."""
    body = orjson.dumps(
        {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}]}
    )
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
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


def test_a_refused_client_that_comes_back_at_once_has_to_wait() -> None:
    """Whoever does not heed Retry-After is read from a little later, so that refusals cost little."""
    many = shots(4, sizes=(1,))
    with serving("--queue", 1, "--max-delay-ms", 300) as server:
        tally = asyncio.run(LoadGenerator(server.url, many, 16).run(3))
    assert set(tally.statuses) == {200, 503}
    # without a pause each of 14 connections would be refused some hundred times a second
    assert tally.statuses[503] < 14 * 3 * 6


def test_gates_by_infer_are_no_more_than_by_their_own_route() -> None:
    """All gates of many rows are refused before anything is run; a few are answered."""
    gates = [{"name": f"layer{layer:02d}.transform_gate"} for layer in range(10)]
    row = {"name": "x", "shape": [256, 1, 8, 8], "datatype": "FP32", "data": [0] * 64 * 256}
    with serving("--max-gates", 400_000) as server:
        refused = server.post(INFER, {"inputs": [row], "outputs": gates})
        assert refused.status_code == 413
        assert "at most 400000 bytes of gates" in refused.json()["error"]
        assert server.post(INFER, {"inputs": [row], "outputs": gates[:1]}).status_code == 200


@pytest.mark.slow
def test_answers_that_nobody_reads_are_held_within_limits() -> None:
    """Clients that ask for much and read nothing are refused at last, and others are answered."""
    given = np.zeros((4000, 1, 8, 8), np.float32)
    head = (
        f'{{"inputs":[{{"name":"x","shape":{list(given.shape)},"datatype":"FP32",'
        f'"parameters":{{"binary_data_size":{given.nbytes}}}}}],'
        '"outputs":[{"name":"layer00.transform_gate"},{"name":"layer01.transform_gate"}]}'
    ).encode()
    body = head + given.tobytes()
    wire = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
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
        until(lambda: refusals in server.get("/metrics").text)
        assert server.post("/v1/models/digits-10:predict", {"instances": [[0] * 64]}).status_code == 200
        # those who read nothing are let go, and there is room again
        until(
            lambda: server.post(INFER, body, headers={"Inference-Header-Content-Length": str(len(head))}).ok,
            30,
        )
