"""The command as a process: how it ends, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import fake_servers as peers
from tests.support import live_server as serving

LONG = ("--duration", "60s", "--warmup", "0", "--rate", "100")


def command(*words: object) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """The command under way."""
    return serving.module("turnpike", "loadtest", *words)


def children(process: subprocess.Popen[str]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(done: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


def under_load(process: subprocess.Popen[str], peer: peers.Peer, more: int = 50) -> list[int]:
    """Wait until requests flow; gives the processes that send."""
    begun = len(peer.asked)
    until(lambda: len(peer.asked) > begun + more or process.poll() is not None)
    assert process.poll() is None, process.stdout and process.stdout.read()
    return children(process)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ("http://127.0.0.1:1",),
            1,
            "error: http://127.0.0.1:1: no server answers there (connection refused)",
        ),
        (("http://127.0.0.1:1", "--users", "x"), 2, "error: --users: expected a whole number, got 'x'"),
    ],
)
def test_wrong_use_is_one_sentence(words: tuple[str, ...], status: int, said: str) -> None:
    """And its exit status tells wrong use from a server that is not there."""
    with command(*words) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert out.startswith(said)
    assert out.count("\n") == 1


def test_help_is_quick() -> None:
    """Neither the help nor wrong use waits for locust to be imported."""
    code = (
        "import sys, turnpike\n"
        "for words in (['loadtest', '--help'], ['loadtest', 'http://h', '--users', 'x']):\n"
        "    try: turnpike.app(words)\n"
        "    except SystemExit: pass\n"
        "sys.exit('locust' in sys.modules or 'gevent' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=serving.ROOT, capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0
    assert b"--find-capacity" in ran.stdout


def test_nothing_is_sent_where_the_report_cannot_be_written(tmp_path: Path) -> None:
    """Known before the load, not after it."""
    (tmp_path / "file").write_text("")
    with peers.serving(peers.triton()) as peer:
        with command(peer.url, "--report", tmp_path / "file") as process:
            out, _ = process.communicate(timeout=60)
        assert peer.asked == []
    assert process.returncode == 2
    assert out.startswith("error: --report: expected a folder")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_test_is_told_all_the_same(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end it with what there is, a report, 130, and no process left."""
    with peers.serving(peers.triton()) as peer, command(peer.url, *LONG, "--report", tmp_path) as process:
        workers = under_load(process, peer)
        time.sleep(2.2)  # whole seconds count, from the next one on
        for pid in (*workers, process.pid):  # as a terminal does it
            os.kill(pid, number)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130, out
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["total"]["good"] > 0
    assert document["total"]["faults"] == {}
    assert workers
    assert not any(map(alive, workers))


@pytest.mark.slow
def test_several_processes_share_the_load(tmp_path: Path) -> None:
    """All of them send, what they report adds up to what the server saw, and they end with the test."""
    options = ("--processes", 2, "--rate", 100, "--duration", "1s", "--warmup", "0", "--samples", 2)
    with peers.serving(peers.triton()) as peer:
        with command(peer.url, *options, "--report", tmp_path) as process:
            workers = under_load(process, peer)
            out, _ = process.communicate(timeout=60)
        sent = sum(asked.path.endswith("/infer") for asked in peer.asked)
    assert process.returncode == 0, out
    assert len(workers) == 2
    assert not any(map(alive, workers))
    good = json.loads((tmp_path / "report.json").read_text())["total"]["good"]
    assert 40 < good <= sent - 2


@pytest.mark.slow
def test_a_sending_process_that_dies_is_an_error() -> None:
    """The figures would lack what it sent: it is said, and nobody is left behind."""
    with peers.serving(peers.triton()) as peer, command(peer.url, *LONG, "--processes", 2) as process:
        workers = under_load(process, peer)
        os.kill(workers[0], signal.SIGKILL)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "error: expected each sending process to last, and one ended (status -9)" in out
    assert not any(map(alive, workers))


@pytest.mark.slow
def test_processes_end_with_the_one_that_leads() -> None:
    """Even when that is killed and can tell them nothing."""
    with peers.serving(peers.triton()) as peer, command(peer.url, *LONG, "--processes", 2) as process:
        workers = under_load(process, peer)
        process.kill()
        process.wait(30)
        assert len(workers) == 2
        until(lambda: not any(map(alive, workers)), 10)
