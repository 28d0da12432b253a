"""The command as its user runs it: real servers, honest and lying, loaded for some seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_servers as peers
from tests.support import live_server as serving
from tests.support.fake_servers import Asked, Given
from tests.support.tls_certificate import certificate


def started(url: str, *options: object) -> subprocess.Popen[str]:
    words = ["--users", 4, "--spawn-rate", 100, "--duration", "1s", "--warmup", 0, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "turnpike", "loadtest", url, *map(str, words)],
        cwd=serving.ROOT,
        env=serving.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], status: int) -> str:
    """What it said, once it has ended with this status."""
    try:
        said, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == status, said
    return said


def loaded(folder: Path, url: str, *options: object, status: int = 0) -> tuple[str, dict[str, Any]]:
    """What the command said and reported."""
    said = ended(started(url, "--report", folder, *options), status)
    assert (folder / "report.html").stat().st_size > 1000
    return said, json.loads((folder / "report.json").read_text())


class Peer:
    """A server as Triton whose answers may change with time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def infer(self, asked: Asked) -> Given:
        with self._lock:
            self.count += 1
            return self.answer(peers.scaled(asked))

    def answer(self, given: Given) -> Given:
        return given


def test_our_own_server(tmp_path: Path) -> None:
    """Every wire is loaded without a fault, and the server has counted as many requests as the report."""
    with serving.serving() as server:
        said, document = loaded(
            tmp_path / "out", server.url, "--wire", "mixed", "--rows", "1,4", "--slo", "errors<0.1%, rate>1"
        )
        (stats,) = server.get("/v2/models/stats").json()["model_stats"]
    total = document["total"]
    assert document["verdict"]["failures"] == []
    assert total["faults"] == {}
    assert {entry["kind"] for entry in document["kinds"]} == {
        f"{wire}, {rows}"
        for wire in ("json", "binary", "v1", "gates", "lesion")
        for rows in ("1 row", "4 rows")
    }
    assert sum(entry["good"] for entry in document["kinds"]) == total["good"] > 100
    # the seconds that count may end before the last answers came
    assert stats["inference_stats"]["success"]["count"] >= total["good"]
    assert "digits-10" in said


@pytest.mark.slow
def test_a_server_that_comes_to_lie(tmp_path: Path) -> None:
    """Wrong answers and refusals under load are told apart, counted, and make the test fail."""

    class Liar(Peer):
        def answer(self, given: Given) -> Given:
            # some answers stay good, whatever part of the test is counted
            if self.count < 100 or self.count % 3 == 0:
                return given
            if self.count % 3 == 1:
                return Given({"error": "busy"}, 503)
            given.body["outputs"][0]["data"][0] += 0.5
            return given

    with peers.serving(peers.triton(Liar().infer)) as peer:
        said, document = loaded(tmp_path / "out", peer.url, "--slo", "errors<10%", status=1)
    faults = document["total"]["faults"]
    assert set(faults) == {"503", "wrong: logits differs from the reference answer"}
    assert document["total"]["good"] > 0
    assert document["verdict"]["wrong_answer"].startswith("json, 1 row: 'logits' at [0, 0]: expected ")
    assert "wrong answers: " in said
    assert "the SLO was missed: errors<10%" in said


@pytest.mark.slow
def test_faults_within_the_slo(tmp_path: Path) -> None:
    """Refusals are allowed as far as the SLO allows them, wrong answers never."""

    class Busy(Peer):
        def answer(self, given: Given) -> Given:
            busy = self.count > 50 and self.count % 10 == 0
            return Given({"error": "busy"}, 503) if busy else given

    for limit, status in ((20, 0), (2, 1)):
        with peers.serving(peers.triton(Busy().infer)) as peer:
            _, document = loaded(tmp_path / str(limit), peer.url, "--slo", f"errors<{limit}%", status=status)
        assert set(document["total"]["faults"]) == {"503"}
        assert document["verdict"]["kept"] is (status == 0)


class Stalling(Peer):
    """Stands still for so long, once, some while after the load has begun."""

    def __init__(self, after: float, seconds: float) -> None:
        super().__init__()
        self._after, self._seconds = after, seconds
        self._first: float | None = None

    def answer(self, given: Given) -> Given:
        # the reference answers come before the load
        if self.count > 16:
            self._first = self._first or time.monotonic()
            if self._seconds and time.monotonic() > self._first + self._after:
                seconds, self._seconds = self._seconds, 0
                time.sleep(seconds)
        return given


def felt(document: dict[str, Any], seconds: float) -> float:
    """How many answers took longer."""
    shares = [share for share, latency in document["distribution"] if latency <= seconds]
    return (1 - max(shares, default=0.0)) * float(document["total"]["good"])


@pytest.mark.slow
def test_a_stall_is_felt_by_all_who_would_have_come(tmp_path: Path) -> None:
    """On a schedule, all that are due while the server stands still wait for it; else only its few users."""
    for loop, options in (("open", ("--rate", 50)), ("closed", ("--users", 2))):
        stalling = Stalling(after=1, seconds=2)
        with peers.serving(peers.triton(stalling.infer)) as peer:
            _, document = loaded(tmp_path / loop, peer.url, "--duration", "5s", *options)
        late = felt(document, 0.5)
        assert document["load"]["loop"] == loop
        # 50 a second for the 1.5 seconds before the last half
        assert (late > 40) if loop == "open" else (late < 10)
        assert document["total"]["max"] > 1


@pytest.mark.slow
def test_a_capacity_that_is_known(tmp_path: Path) -> None:
    """A server that takes 20 ms for each request, one after the other, bears less than 50 a second."""

    class Slow(Peer):
        def answer(self, given: Given) -> Given:
            time.sleep(0.02)
            return given

    with peers.serving(peers.triton(Slow().infer)) as peer:
        said, document = loaded(
            tmp_path / "out",
            peer.url,
            *("--find-capacity", "--slo", "p99<300ms, errors<1%", "--step-seconds", "1s"),
        )
    capacity = document["capacity"]
    assert capacity["rate"] is not None, said
    assert 10 < capacity["rate"] < 55
    assert {step["held"] for step in capacity["steps"]} == {True, False}


@pytest.mark.slow
def test_a_server_that_goes_away(tmp_path: Path) -> None:
    """Requests without an answer are faults of their own, and the report is written all the same."""
    with serving.serving() as server:
        process = started(server.url, "--duration", "3s", "--report", tmp_path / "out", "--slo", "errors<1%")
        until = time.monotonic() + 30
        while server.get("/v2/models/stats").json()["model_stats"][0]["inference_count"] < 100:
            assert time.monotonic() < until
            time.sleep(0.05)
        # figures begin with a whole second
        time.sleep(1.2)
        server.stop()
        said = ended(process, 1)
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "connection refused" in document["total"]["faults"]
    assert document["total"]["good"] > 0
    assert "the SLO was missed: errors<1%" in said


@pytest.mark.slow
def test_other_peoples_servers(tmp_path: Path) -> None:
    """Servers as Triton, MLServer and KServe are loaded by what they speak, open loop and closed."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((64, 4), np.float32))
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((64, 4), np.float32))
    for name, routes, options, wires in (
        ("triton", peers.triton(), ("--rate", 100), {"json", "binary"}),
        ("kserve", peers.kserve(), ("--data", tmp_path / "rows.npy"), {"json", "v1"}),
        ("mlserver", peers.mlserver(), ("--data", tmp_path / "rows.npz"), {"json"}),
    ):
        with peers.serving(routes) as peer:
            _, document = loaded(tmp_path / name, peer.url, "--wire", "mixed", "--rows", "1,3", *options)
        assert document["target"]["server"] == name
        assert {entry["kind"].split(",")[0] for entry in document["kinds"]} == wires
        assert document["total"]["faults"] == {}
        assert document["total"]["good"] > 10


@pytest.mark.slow
def test_keys_and_certificates(tmp_path: Path) -> None:
    """A server that wants a key, over a certificate of its own making, is loaded with both options only."""
    (cert, key), keys = certificate(tmp_path), tmp_path / "keys"
    keys.write_text("secret-of-ours\n")
    options = ("--tls-cert", cert, "--tls-key", key, "--api-keys-file", keys)
    with serving.serving(*options) as server:
        assert "--insecure takes it" in ended(started(server.url), 1)
        assert "--api-key-file holds a key" in ended(started(server.url, "--insecure"), 1)
        _, document = loaded(
            tmp_path / "out", server.url, "--insecure", "--api-key-file", keys, "--duration", "3s"
        )
    assert document["total"]["faults"] == {}
    assert document["server"] is not None
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert not any("secret-of-ours" in text for text in written)
