"""A real server with a worker that is stopped: what clients, admins and Prometheus see."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.live_server import Server, serving, worker_processes
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.waiting import wait_until

KEY = {"X-Api-Key": "k"}
MODEL = "/v2/models/digits-10"
REPOSITORY = "/v2/repository/models/digits-10"


def answering(server: Server) -> tuple[int, int]:
    """The numbers of workers, and of those that answer, in the metrics."""
    text = server.get("/metrics").text
    (workers,) = re.findall(r"^turnpike_workers (\S+)", text, re.MULTILINE)
    (answering,) = re.findall(r"^turnpike_workers_answering (\S+)", text, re.MULTILINE)
    return int(float(workers)), int(float(answering))


@pytest.mark.slow
def test_a_stopped_worker_is_left_out_and_catches_up() -> None:
    """The other worker answers everything. When the worker continues, it makes the change that it missed."""
    with serving("--workers", 2, "--worker-seconds", 12, TURNPIKE_ADMIN_KEY="k") as server:
        assert answering(server) == (2, 2)
        stopped = worker_processes(server)[0]
        stopped.suspend()
        started = time.monotonic()
        # waits until the worker counts as silent, since it may be about to answer
        response = server.post(f"{REPOSITORY}/unload", headers=KEY)
        assert time.monotonic() - started < 6
        assert response.status_code == 200
        assert re.fullmatch(
            r"worker [12] \(process \d+\) has not answered for \d(\.\d)? s; it is replaced after 12 s",
            response.json()["warning"],
        )
        assert answering(server) == (2, 1)
        assert server.get("/v2/health/ready").status_code == 200
        assert server.get(f"{MODEL}/ready").status_code == 503
        assert server.post("/v2/repository/index").json()[0]["state"] == "UNAVAILABLE"
        assert server.get("/v2/models/stats").status_code == 200
        stopped.resume()
        wait_until(lambda: "answers again" in server.output)
        assert {server.get(f"{MODEL}/ready").status_code for _ in range(30)} == {503}
        assert answering(server) == (2, 2)
        assert server.post(f"{REPOSITORY}/load", headers=KEY).json() == {}
        assert {server.get(f"{MODEL}/ready").status_code for _ in range(30)} == {200}
        assert stopped.is_running()


@pytest.mark.slow
def test_the_only_worker_is_replaced_and_serves_again() -> None:
    """A client that connects while it is stopped is answered by the new worker."""
    with serving("--worker-seconds", 2) as server:
        (stopped,) = worker_processes(server)
        os.kill(stopped.pid, signal.SIGSTOP)
        assert server.get(f"{MODEL}/ready").status_code == 200
        assert [process.pid for process in worker_processes(server)] != [stopped.pid]
        assert "has not answered for 2 s: it is killed, and a new one takes its place" in server.output


@pytest.mark.load
def test_loading_a_large_model_is_no_silence(tmp_path: Path) -> None:
    """onnxruntime opens it in a thread, which takes longer than a worker may be silent."""
    put_model(tmp_path)
    with serving("--models", tmp_path, "--poll", 0, "--worker-seconds", 1, TURNPIKE_ADMIN_KEY="k") as server:
        before = worker_processes(server)
        put_model(tmp_path, version=2, data=with_manifest(highway(units=1800, layers=8)))
        started = time.monotonic()
        assert server.post("/v2/repository/models/net/load", headers=KEY).json() == {}
        assert time.monotonic() - started > 1.3, "the model is too small for this test"
        assert worker_processes(server) == before
