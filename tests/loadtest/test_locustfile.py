"""Locust's own command with our locustfile: headless, in several processes, and by its web page."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import fake_servers as peers
from tests.support import live_server as serving
from tests.support.fake_servers import Asked, Given

HEADLESS = ("--headless", "--only-summary", "--users", 4, "--spawn-rate", 100, "--warmup", 0)


def locust(*words: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Locust under way."""
    return serving.module("locust", "-f", "loadtest/locustfile.py", *words)


def ran(url: str, *words: object, status: int = 0) -> str:
    """What locust said, once it has ended with this status."""
    with locust("--host", url, *HEADLESS, *words) as process:
        out, _ = process.communicate(timeout=90)
    assert process.returncode == status, out
    return out


def reported(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return document


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(done: Callable[[], Any], seconds: float = 40) -> Any:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(requests.ConnectionError):
            if found := done():
                return found
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


class Liar:
    """Right at first, as a reference answer must be; then a little off, or busy."""

    def __init__(self, wrong: bool) -> None:
        self.count, self.wrong = 0, wrong

    def __call__(self, asked: Asked) -> Given:
        self.count += 1
        given = peers.scaled(asked)
        if self.count > 20 and self.count % 2:
            if not self.wrong:
                return Given({"error": "busy"}, 503)
            given.body["outputs"][0]["data"][0] += 0.5
        return given


def test_headless(tmp_path: Path) -> None:
    """Exit status 0 within the SLO, locust's statistics by our kinds, and a report of ours."""
    with peers.serving(peers.triton()) as peer:
        out = ran(
            peer.url,
            "--run-time",
            "2s",
            "--slo",
            "errors<1%",
            "--report",
            tmp_path,
            "--rows",
            "1,3",
            "--samples",
            2,
        )
    document = reported(tmp_path)
    assert {entry["kind"] for entry in document["kinds"]} == {"json, 1 row", "json, 3 rows"}
    assert document["total"]["faults"] == {}
    assert document["total"]["good"] > 10
    assert re.search(r"POST +json, 3 rows +\d+ +0\(0\.00%\)", out)


@pytest.mark.slow
def test_a_missed_slo_is_exit_status_1(tmp_path: Path) -> None:
    """Refusals are counted by name, here and by locust, and what was missed is said."""
    with peers.serving(peers.triton(Liar(wrong=False))) as peer:
        out = ran(peer.url, "--run-time", "2s", "--slo", "errors<1%", "--report", tmp_path, status=1)
        assert "the SLO was missed: errors<1%" in out
        assert "FaultError('503')" in out
        assert set(reported(tmp_path)["total"]["faults"]) == {"503"}
    with peers.serving(peers.triton(Liar(wrong=False))) as peer:
        ran(peer.url, "--run-time", "2s", "--slo", "errors<90%")


@pytest.mark.slow
def test_wrong_answers_are_exit_status_1() -> None:
    """However many the SLO allows."""
    with peers.serving(peers.triton(Liar(wrong=True))) as peer:
        out = ran(peer.url, "--run-time", "2s", "--slo", "errors<90%", status=1)
    assert "wrong answers: " in out


@pytest.mark.slow
def test_several_processes(tmp_path: Path) -> None:
    """What all of them sent is in one report, in a closed loop and in an open one."""
    with peers.serving(peers.triton()) as peer:
        for options, least in (((), 30), (("--rate", 60, "--wire", "binary"), 90)):
            ran(peer.url, "--run-time", "4s", "--processes", 2, "--report", tmp_path, *options)
            sent = sum(asked.path.endswith("/infer") for asked in peer.asked)
            peer.asked.clear()
            total = reported(tmp_path)["total"]
            assert total["faults"] == {}
            assert least < total["good"] <= sent


@pytest.mark.slow
def test_users_by_class(tmp_path: Path) -> None:
    """Classes that are named go, each with its wire, whatever --wire says."""
    with serving.serving() as server:
        ran(server.url, "--run-time", "3s", "--report", tmp_path, "--wire", "json", "Gates", "PredictV1")
        kinds = {entry["kind"] for entry in reported(tmp_path)["kinds"]}
    assert kinds == {"gates, 1 row", "v1, 1 row"}


@pytest.mark.slow
def test_a_shape(tmp_path: Path) -> None:
    """Users come in steps over the time that there is, and the test ends with it."""
    with peers.serving(peers.triton()) as peer:
        out = ran(peer.url, "--run-time", "6s", "--shape", "step", "--users", 10, "--report", tmp_path)
        assert re.findall(r"updating to (\d+) users", out) == ["2", "4", "6", "8", "10"]
        assert "--run-time" in ran(peer.url, "--shape", "step", status=2)


@pytest.mark.slow
def test_wrong_use_is_known_before_the_load() -> None:
    """One sentence and its exit status, and nothing is sent."""
    with peers.serving(peers.triton()) as peer:
        assert "error: --rows: expected whole numbers" in ran(peer.url, "--rows", "x", status=2)
        assert "error: --wire gates: " in ran(peer.url, "--wire", "gates", status=2)
        assert not any(asked.path.endswith("/infer") for asked in peer.asked)
    assert "no server answers there" in ran("http://127.0.0.1:1", status=1)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("--processes", 2)], ids=["one process", "three processes"])
def test_the_web_page(processes: tuple[object, ...], tmp_path: Path) -> None:
    """A test is started, seen and stopped there, with our options; its report is there when it is over."""
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    asked = {"user_count": 4, "spawn_rate": 4, "rows": "2", "user_classes": "PredictBinary"}
    with peers.serving(peers.triton()) as peer:
        web = ("--web-host", "127.0.0.1", "--web-port", port, "--class-picker", "--warmup", 0)
        with locust("--host", peer.url, *web, *processes, "--report", tmp_path) as process:
            shown = until(lambda: requests.get(page, timeout=10).text)
            for option in ("wire", "rows", "slo", "rate"):
                assert f'"{option}": {{' in shown
            # of this machine nobody chooses files there
            assert '"api_key": {' not in shown
            if processes:
                until(lambda: len(requests.get(f"{page}/stats/requests", timeout=10).json()["workers"]) == 2)
            started = requests.post(f"{page}/swarm", {**asked, "host": peer.url}, timeout=10).json()
            assert started["success"]
            until(lambda: _counted(page, "binary, 2 rows") > 20)
            requests.post(f"{page}/stop", timeout=30)
            until((tmp_path / "report.json").exists)
            first = reported(tmp_path)
            # a wrong name is said, and the page can be used again
            requests.post(f"{page}/swarm", {**asked, "host": peer.url, "model": "nope"}, timeout=10)
            until(lambda: "expected a model 'nope'" in requests.get(f"{page}/exceptions", timeout=10).text)
            peer.asked.clear()
            requests.post(f"{page}/swarm", {**asked, "host": peer.url, "model": "", "rate": "50"}, timeout=10)
            # more than one reference answer for each sample
            until(lambda: len(peer.asked) > 60)
            process.terminate()
            out, _ = process.communicate(timeout=30)
    assert [entry["kind"] for entry in first["kinds"]] == ["binary, 2 rows"]
    assert first["load"]["loop"] == "closed"
    assert reported(tmp_path)["load"]["loop"] == "open"
    assert "expected a model 'nope'" in out


def _counted(page: str, kind: str) -> int:
    """Requests of a kind, as the page has them."""
    entries = requests.get(f"{page}/stats/requests", timeout=10).json()["stats"]
    return sum(int(entry["num_requests"]) for entry in entries if entry["name"] == kind)
