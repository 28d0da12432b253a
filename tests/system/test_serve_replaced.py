"""Workers that are replaced while the files on disk differ from those that are served."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import requests

from tests.support.live_server import Server, serving
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.waiting import wait_until

READY = "/v2/models/net/ready"


def kill_oldest_worker(server: Server) -> None:
    """Kill a worker, and wait for its replacement."""
    supervisor = psutil.Process(server.process.pid)
    before = {process.pid: process.create_time() for process in supervisor.children()}
    os.kill(min(before, key=lambda pid: (before[pid], pid)), signal.SIGKILL)
    wait_until(lambda: {process.pid for process in supervisor.children()} - before.keys())


def index(server: Server) -> list[tuple[str, str, str]]:
    entries = server.post("/v2/repository/index").json()
    return [(entry["version"], entry["state"], entry["reason"]) for entry in entries]


@pytest.mark.slow
def test_a_replacement_worker_serves_a_new_file(tmp_path: Path) -> None:
    """The only worker dies after its file was replaced by another good one."""
    put_model(tmp_path)
    with serving("--models", tmp_path, "--poll", 0) as server:
        put_model(tmp_path, data=with_manifest(highway(seed=7)))
        assert server.get(READY).status_code == 200
        kill_oldest_worker(server)
        wait_until(lambda: server.get(READY).status_code == 200, allowed=requests.ConnectionError)
        assert index(server) == [("1", "READY", "")]


@pytest.mark.slow
def test_a_replacement_worker_without_a_good_file_gives_the_reason(tmp_path: Path) -> None:
    """The only worker dies after its file was damaged: 503 with the reason until the file is good again."""
    file = put_model(tmp_path)
    with serving("--models", tmp_path, "--poll", 0.1) as server:
        file.path.write_bytes(b"")
        kill_oldest_worker(server)
        wait_until(lambda: server.get(READY).status_code == 503, allowed=requests.ConnectionError)
        assert server.get("/v2/health/ready").status_code == 503
        assert server.get("/v2/health/live").status_code == 200
        ((version, state, reason),) = index(server)
        assert (version, state) == ("1", "UNAVAILABLE")
        assert "its file is" in reason
        put_model(tmp_path)
        wait_until(lambda: server.get(READY).status_code == 200, allowed=requests.ConnectionError)


@pytest.mark.slow
def test_a_worker_without_the_model_gets_no_requests(tmp_path: Path) -> None:
    """One of two dies after the file was damaged: the other answers all requests until it is good again.

    From then on the replacement answers too, and answers all requests when the other one dies.
    """
    file = put_model(tmp_path)
    with serving("--models", tmp_path, "--workers", 2, "--poll", 0.1) as server:
        file.path.write_bytes(file.path.read_bytes()[:1000])
        wait_until(lambda: index(server)[0][2], allowed=requests.ConnectionError)
        kill_oldest_worker(server)
        # only connections that the dead worker had accepted are lost
        wait_until(lambda: server.get(READY).status_code == 200, allowed=requests.ConnectionError)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert server.get(READY).status_code == 200
        ((_, state, reason),) = index(server)
        assert state == "READY"
        assert reason.startswith("an older file is served, the new one is not: its file is damaged")
        put_model(tmp_path)
        wait_until(lambda: index(server) == [("1", "READY", "")], allowed=requests.ConnectionError)
        kill_oldest_worker(server)
        wait_until(lambda: server.get(READY).status_code == 200, allowed=requests.ConnectionError)


@pytest.mark.slow
def test_keys_may_be_read_from_a_pipe(tmp_path: Path) -> None:
    """Every worker has them, including replacements."""
    reading, writing = os.pipe()
    os.write(writing, b"secret-key\n")
    os.close(writing)
    put_model(tmp_path)
    path = f"/proc/{os.getpid()}/fd/{reading}"
    with serving("--models", tmp_path, "--workers", 2, "--api-keys-file", path) as server:
        os.close(reading)
        kill_oldest_worker(server)
        for _ in range(20):
            assert server.get(READY).status_code == 401
            assert server.get(READY, headers={"X-Api-Key": "secret-key"}).status_code == 200
