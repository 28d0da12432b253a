"""A real service and a model that never ends, which `--allow-unverified` lets in."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.endless_model import endless_model
from tests.support.live_server import Server, serving
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until

ROW = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
UNVERIFIED = ("--allow-unverified", "--workers", 2)


def state(server: Server, name: str) -> tuple[str, str]:
    """State and reason in the index, empty for a model that is not there yet."""
    entries = [entry for entry in server.post("/v2/repository/index").json() if entry["name"] == name]
    return (entries[0]["state"], entries[0]["reason"]) if entries else ("", "")


def trials(server: Server) -> list[psutil.Process]:
    """The processes that run trials."""
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "turnpike.service.registry.trial_run" in child.cmdline()]


@pytest.mark.slow
def test_an_endless_model_keeps_no_other_away(tmp_path: Path) -> None:
    """It is on trial, once and not in each worker, while others are loaded and answer. Then it has failed."""
    put_model(tmp_path, "good")
    with serving(
        "--models", tmp_path, *UNVERIFIED, "--poll", 0.1, "--trial-seconds", 6, TURNPIKE_ADMIN_KEY="k"
    ) as server:
        put_model(tmp_path, "endless", data=endless_model())
        put_model(tmp_path, "short", data=endless_model(turns=3))
        wait_until(lambda: state(server, "endless") == ("LOADING", ""))
        put_model(tmp_path, "other")
        load = server.post("/v2/repository/models/other/load", headers={"Authorization": "Bearer k"})
        assert load.status_code == 200
        wait_until(lambda: state(server, "short") == ("READY", ""))
        assert len(trials(server)) == 1
        assert state(server, "endless") == ("LOADING", "")
        for name in ("good", "other", "short"):
            assert server.post(f"/v2/models/{name}/infer", ROW).status_code == 200
        reason = "its trial took longer than 6 s (--trial-seconds)"
        wait_until(lambda: state(server, "endless") == ("UNAVAILABLE", reason))
        assert trials(server) == []
        assert server.get("/v2/health/ready").status_code == 200
        failed = [line for line in server.get("/metrics").text.splitlines() if "model_load_failed{" in line]
        assert len(failed) == 1
        assert 'model="endless"' in failed[0]
        begun = [line for line in server.lines if "endless/1 has no manifest" in line]
        assert len(begun) == 1


@pytest.mark.slow
def test_a_signal_during_a_trial_ends_the_service(tmp_path: Path) -> None:
    """Quickly and with status 0, and the one who waits for the trial gets an answer. No process stays."""
    put_model(tmp_path, "good")
    with serving("--models", tmp_path, *UNVERIFIED, "--poll", 0, TURNPIKE_ADMIN_KEY="k") as server:
        put_model(tmp_path, "endless", data=endless_model())
        statuses: list[int] = []

        def load() -> None:
            path, key = "/v2/repository/models/endless/load", {"Authorization": "Bearer k"}
            statuses.append(server.post(path, headers=key).status_code)

        loading = threading.Thread(target=load)
        loading.start()
        (child,) = wait_until(lambda: trials(server))
        start = time.monotonic()
        assert server.stop() == 0
        # requests would have 30 s to finish
        assert time.monotonic() - start < 20
        loading.join(10)
        assert statuses == [503]
        wait_until(lambda: not child.is_running())
