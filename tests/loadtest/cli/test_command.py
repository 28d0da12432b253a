"""The command as a process: its exit status, and that no process is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import fake_servers, live_server
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

LONG = ("--duration", "60s", "--warmup", "0", "--rate", "100")


def command(*arguments: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """Start the command."""
    return live_server.module("turnpike", "loadtest", *arguments)


def children(process: subprocess.Popen[str]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


def wait_for_load(
    process: subprocess.Popen[str], server: fake_servers.FakeServer, count: int = 50
) -> list[int]:
    """Wait until the command sends requests; returns its sending processes."""
    begun = len(server.requests)
    wait_until(lambda: len(server.requests) > begun + count or process.poll() is not None)
    assert process.poll() is None, process.stdout and process.stdout.read()
    return children(process)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ("http://127.0.0.1:1",),
            1,
            "error: http://127.0.0.1:1: no server answers there (connection refused)",
        ),
        (("http://127.0.0.1:1", "--users", "x"), 2, "error: --users: expected a whole number, got 'x'"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], status: int, message: str) -> None:
    with command(*arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert output.startswith(message)
    assert output.count("\n") == 1


def test_help_does_not_import_large_libraries() -> None:
    code = (
        "import sys\nfrom turnpike import cli\n"
        "for arguments in (['loadtest', '--help'], ['loadtest', 'http://h', '--users', 'x']):\n"
        "    try: cli.app(arguments)\n"
        "    except SystemExit: pass\n"
        "sys.exit('locust' in sys.modules or 'gevent' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=live_server.ROOT, capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 0
    assert b"--find-capacity" in result.stdout


def test_nothing_is_sent_if_the_report_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with fake_servers.fake_server(fake_servers.triton()) as server:
        with command(server.url, "--report", tmp_path / "file") as process:
            output, _ = process.communicate(timeout=60)
        assert server.requests == []
    assert process.returncode == 2
    assert output.startswith("error: --report: expected a writable folder")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_test_still_has_a_report(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end it with a report and exit status 130, and no process is left."""
    with (
        fake_servers.fake_server(fake_servers.triton()) as server,
        command(server.url, *LONG, "--report", tmp_path) as process,
    ):
        workers = wait_for_load(process, server)
        time.sleep(2.2)  # only whole seconds are measured
        for pid in (*workers, process.pid):  # a terminal signals all of them
            os.kill(pid, number)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    document = json.loads((tmp_path / "loadtest.json").read_text())
    assert document["total"]["good"] > 0
    assert document["total"]["faults"] == {}
    assert workers
    assert not any(map(is_alive, workers))


@pytest.mark.slow
def test_several_processes_share_the_load(tmp_path: Path) -> None:
    options = ("--processes", 2, "--rate", 100, "--duration", "1s", "--warmup", "0", "--samples", 2)
    with fake_servers.fake_server(fake_servers.triton()) as server:
        with command(server.url, *options, "--report", tmp_path) as process:
            workers = wait_for_load(process, server)
            output, _ = process.communicate(timeout=60)
        sent = sum(request.path.endswith("/infer") for request in server.requests)
    assert process.returncode == 0, output
    assert len(workers) == 2
    assert not any(map(is_alive, workers))
    good = json.loads((tmp_path / "loadtest.json").read_text())["total"]["good"]
    assert 40 < good <= sent - 2


@pytest.mark.slow
def test_a_sending_process_that_dies_is_an_error() -> None:
    """Without it, the results would silently lack its requests."""
    with (
        fake_servers.fake_server(fake_servers.triton()) as server,
        command(server.url, *LONG, "--processes", 2) as process,
    ):
        workers = wait_for_load(process, server)
        os.kill(workers[0], signal.SIGKILL)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "error: a sending process ended during the test, with exit status -9" in output
    assert not any(map(is_alive, workers))


@pytest.mark.slow
def test_sending_processes_end_with_the_coordinator() -> None:
    """They end even if it is killed and cannot send them a message."""
    with (
        fake_servers.fake_server(fake_servers.triton()) as server,
        command(server.url, *LONG, "--processes", 2) as process,
    ):
        workers = wait_for_load(process, server)
        process.kill()
        process.wait(30)
        assert len(workers) == 2
        wait_until(lambda: not any(map(is_alive, workers)), 10)
