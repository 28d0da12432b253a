"""locust's own command with our locustfile: headless, with several processes, and with its web page."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import fake_servers, live_server
from tests.support.fake_servers import FakeAnswer, ReceivedRequest
from tests.support.waiting import wait_until

# the port of a master, unless another one is given
LOCUST_PORT = 5557
# locust patches the standard library when it is imported, so this runs in a process of its own
PRINT_PORTS = """
import json, sys
from locust.argument_parser import get_empty_argument_parser, setup_parser_arguments
from locust.event import Events
from turnpike.loadtest.locust_hooks import LocustHooks

for line in sys.stdin:
    sys.argv[1:] = line.split()
    events, parser = Events(), get_empty_argument_parser()
    LocustHooks(events)
    setup_parser_arguments(parser)
    events.init_command_line_parser.fire(parser=parser)
    options = parser.parse_args()
    print(json.dumps([options.master_bind_port, options.master_port]))
"""
HEADLESS = ("--headless", "--only-summary", "--users", 4, "--spawn-rate", 100, "--warmup", 0)


def locust(*arguments: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Start locust."""
    return live_server.module("locust", "-f", "loadtest/locustfile.py", *arguments)


def run_locust(url: str, *arguments: object, status: int = 0) -> str:
    """Run locust until it ends with this status; returns its output."""
    with locust("--host", url, *HEADLESS, *arguments) as process:
        out, _ = process.communicate(timeout=90)
    assert process.returncode == status, out
    return out


def read_report(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "loadtest.json").read_text())
    return document


class Faulty:
    """Gives correct answers at first, for the reference; then every second one is wrong, or busy."""

    def __init__(self, wrong: bool) -> None:
        self.count, self.wrong = 0, wrong

    def __call__(self, request: ReceivedRequest) -> FakeAnswer:
        self.count += 1
        answer = fake_servers.scale_rows(request)
        if self.count > 20 and self.count % 2:
            if not self.wrong:
                return FakeAnswer({"error": "busy"}, 503)
            answer.body["outputs"][0]["data"][0] += 0.5
        return answer


@pytest.mark.slow
def test_a_headless_test_writes_a_report(tmp_path: Path) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        out = run_locust(
            server.url,
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
    document = read_report(tmp_path)
    assert {entry["kind"] for entry in document["kinds"]} == {"json, 1 row", "json, 3 rows"}
    assert document["total"]["faults"] == {}
    assert document["total"]["good"] > 10
    assert re.search(r"POST +json, 3 rows +\d+ +0\(0\.00%\)", out)


def test_the_processes_of_one_command_connect_over_a_free_port() -> None:
    """Others use locust's port, at which master and workers of several commands find each other."""
    lines = [
        "--processes 2",
        "--processes 2",
        "--processes 2 --master-bind-port 5557",
        "--processes 2 --master-port 6000",
        "",
        "--master",
        "--worker",
        "--worker --processes 2",
    ]
    result = subprocess.run(
        [sys.executable, "-c", PRINT_PORTS],
        input="\n".join(lines) + "\n",
        cwd=live_server.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    first, second, *others = [json.loads(line) for line in result.stdout.splitlines()]
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert len({first[0], second[0], LOCUST_PORT}) == 3
    assert others == [[LOCUST_PORT] * 2, [6000] * 2, *[[LOCUST_PORT] * 2] * 4]


@pytest.mark.slow
def test_a_missed_slo_is_exit_status_1(tmp_path: Path) -> None:
    with fake_servers.fake_server(fake_servers.triton(Faulty(wrong=False))) as server:
        out = run_locust(server.url, "--run-time", "2s", "--slo", "errors<1%", "--report", tmp_path, status=1)
        assert "the SLO was missed: errors<1%" in out
        assert "BadAnswerError('503')" in out
        assert set(read_report(tmp_path)["total"]["faults"]) == {"503"}
    with fake_servers.fake_server(fake_servers.triton(Faulty(wrong=False))) as server:
        run_locust(server.url, "--run-time", "2s", "--slo", "errors<90%")


@pytest.mark.slow
def test_wrong_answers_are_exit_status_1() -> None:
    with fake_servers.fake_server(fake_servers.triton(Faulty(wrong=True))) as server:
        out = run_locust(server.url, "--run-time", "2s", "--slo", "errors<90%", status=1)
    assert "wrong answers: " in out


@pytest.fixture
def occupied_port() -> Iterator[None]:
    """Another load test has the port of locust's master."""
    with socket.socket() as listener:
        # if another process has the port already, the test works too
        with contextlib.suppress(OSError):
            listener.bind(("", LOCUST_PORT))
            listener.listen()
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("occupied_port")
def test_several_processes_share_the_load(tmp_path: Path) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        for options, least in (((), 30), (("--rate", 60, "--wire", "binary"), 90)):
            run_locust(server.url, "--run-time", "4s", "--processes", 2, "--report", tmp_path, *options)
            sent = sum(request.path.endswith("/infer") for request in server.requests)
            server.requests.clear()
            total = read_report(tmp_path)["total"]
            assert total["faults"] == {}
            assert least < total["good"] <= sent


@pytest.mark.slow
def test_user_classes_have_their_own_wire_formats(tmp_path: Path) -> None:
    """User classes that are named run with their own wire formats, whatever --wire says."""
    with live_server.serving() as server:
        run_locust(
            server.url, "--run-time", "3s", "--report", tmp_path, "--wire", "json", "Gates", "PredictV1"
        )
        kinds = {entry["kind"] for entry in read_report(tmp_path)["kinds"]}
    assert kinds == {"gates, 1 row", "v1, 1 row"}


@pytest.mark.thorough
@pytest.mark.slow
def test_a_load_shape_changes_the_number_of_users(tmp_path: Path) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        out = run_locust(
            server.url, "--run-time", "6s", "--shape", "step", "--users", 10, "--report", tmp_path
        )
        assert re.findall(r"updating to (\d+) users", out) == ["2", "4", "6", "8", "10"]
        assert "--run-time" in run_locust(server.url, "--shape", "step", status=2)


@pytest.mark.slow
def test_invalid_options_are_rejected_before_the_load() -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        assert "error: --rows: expected whole numbers" in run_locust(server.url, "--rows", "x", status=2)
        assert "error: --wire gates: " in run_locust(server.url, "--wire", "gates", status=2)
        assert not any(request.path.endswith("/infer") for request in server.requests)
    assert "no server answers there" in run_locust("http://127.0.0.1:1", status=1)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("--processes", 2)], ids=["one process", "three processes"])
def test_the_web_page_starts_and_stops_the_load(processes: tuple[object, ...], tmp_path: Path) -> None:
    port = live_server.free_port()
    page = f"http://127.0.0.1:{port}"
    form = {"user_count": 4, "spawn_rate": 4, "rows": "2", "user_classes": "PredictBinary"}
    with fake_servers.fake_server(fake_servers.triton()) as server:
        web = ("--web-host", "127.0.0.1", "--web-port", port, "--class-picker", "--warmup", 0)
        with locust("--host", server.url, *web, *processes, "--report", tmp_path) as process:
            shown = wait_until(lambda: requests.get(page, timeout=10).text, 40, requests.ConnectionError)
            for option in ("wire", "rows", "slo", "rate"):
                assert f'"{option}": {{' in shown
            # a visitor of the page must not choose files on this machine
            assert '"api_key": {' not in shown
            if processes:
                wait_until(
                    lambda: len(requests.get(f"{page}/stats/requests", timeout=10).json()["workers"]) == 2
                )
            started = requests.post(f"{page}/swarm", {**form, "host": server.url}, timeout=10).json()
            assert started["success"]
            wait_until(lambda: _counted(page, "binary, 2 rows") > 20)
            requests.post(f"{page}/stop", timeout=30)
            wait_until((tmp_path / "loadtest.json").exists)
            first = read_report(tmp_path)
            # a wrong name is reported, and the page can be used again
            requests.post(f"{page}/swarm", {**form, "host": server.url, "model": "nope"}, timeout=10)
            wait_until(
                lambda: "expected a model 'nope'" in requests.get(f"{page}/exceptions", timeout=10).text
            )
            server.requests.clear()
            requests.post(
                f"{page}/swarm", {**form, "host": server.url, "model": "", "rate": "50"}, timeout=10
            )
            # more requests than those for reference answers
            wait_until(lambda: len(server.requests) > 60)
            process.terminate()
            out, _ = process.communicate(timeout=30)
    assert [entry["kind"] for entry in first["kinds"]] == ["binary, 2 rows"]
    assert first["load"]["loop"] == "closed"
    assert read_report(tmp_path)["load"]["loop"] == "open"
    assert "expected a model 'nope'" in out


def _counted(page: str, kind: str) -> int:
    """Number of requests of a kind on the page."""
    entries = requests.get(f"{page}/stats/requests", timeout=10).json()["stats"]
    return sum(int(entry["num_requests"]) for entry in entries if entry["name"] == kind)
