"""The command against real servers, correct and faulty ones, for a few seconds each."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_servers, live_server
from tests.support.fake_servers import FakeAnswer, ReceivedRequest
from tests.support.tls_certificate import certificate

# locust patches the standard library when it is imported, so this runs in a process of its own
SEARCH = """
from turnpike.loadtest.run import LoadTest  # isort: skip
import json
import math
from types import SimpleNamespace

from turnpike.loadtest.ledger import Ledger, now
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo
from tests.support.loadtest_records import add_requests, sample_target


class OverloadedServer:
    # processes and a server in place of real ones: no request has a good answer, at any rate
    def __init__(self):
        self.ledger, self.events, self.latencies = Ledger(), [], iter([math.inf, 0.5, 0.02])
        self.user_count, self.busy_samples, self.first_wrong = 0, {}, None
        self.idle_latency, self.target = 0.01, sample_target()
        self.checker = SimpleNamespace(kinds_with_equal_answers=())

    def start_open_loop(self):
        pass

    check_workers = start_open_loop

    def set_rate(self, rate):
        self.events.append(rate)

    def drain(self):
        for second in range(int(now()) - 5, int(now()) + 1):
            add_requests(self.ledger, second, 1, 60, faults={"503": 1})
        return 0.0

    def is_answered_within(self, seconds):
        self.events.append(latency := next(self.latencies))
        return latency <= seconds


server = OverloadedServer()
plan = LoadPlan("http://127.0.0.1:9", find_capacity=True, warmup=0, step_seconds=0.1, slo=Slo.parse("p99<1s"))
test = LoadTest(plan, server, server, lambda: server.events[-1] == 25, lambda state: None)
assert test.run().interrupted
print(json.dumps(server.events))
"""


# the processes send at most 2,000 requests per second, all of which have good answers
LIMITED_SEARCH = """
from turnpike.loadtest.run import LoadTest  # isort: skip
import json
import sys
from types import SimpleNamespace

from turnpike.loadtest.ledger import Ledger, now
from turnpike.loadtest.measure.summary import failures
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.slo import Slo
from turnpike.loadtest.workload.payloads import Payload
from tests.support.loadtest_records import add_requests, sample_target


class LimitedProcesses:
    def __init__(self):
        self.ledger, self.rate, self.user_count = Ledger(), 0, 0
        self.busy_samples, self.first_wrong = {}, None
        self.idle_latency, self.target = 0.0003, sample_target()
        self.checker = SimpleNamespace(kinds_with_equal_answers=())

    def start_open_loop(self):
        pass

    check_workers = start_open_loop

    def set_rate(self, rate):
        self.rate, self.begun = rate, int(now())

    def drain(self):
        # the warm-up has the rate of the first step
        add_requests(self.ledger, self.begun, int(now()) + 1 - self.begun, min(self.rate, 2000))
        return 0.0

    def is_answered_within(self, seconds):
        return True

    def payloads(self, wire):
        return (Payload("json, 1 row", "/v2/models/m/infer", b"{}", {}, 1, 1.0, wire),)


limited = LimitedProcesses()
plan = LoadPlan(
    sys.argv[1], find_capacity=True, warmup=0, step_seconds=0.1, users=7, slo=Slo.parse("p99<1s")
)
record = LoadTest(plan, limited, limited, lambda: False, lambda state: None).run()
assert not failures(record)
print(json.dumps(build_document(record)))
"""


def start(url: str, *options: object) -> subprocess.Popen[str]:
    words = ["--users", 4, "--spawn-rate", 100, "--duration", "1s", "--warmup", 0, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "turnpike", "loadtest", url, *map(str, words)],
        cwd=live_server.ROOT,
        env=live_server.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_end(process: subprocess.Popen[str], status: int) -> str:
    """Wait for the end of the command with this status; returns its output."""
    try:
        output, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == status, output
    return output


def run_load(folder: Path, url: str, *options: object, status: int = 0) -> tuple[str, dict[str, Any]]:
    """Run the command; returns its output and report."""
    output = wait_for_end(start(url, "--report", folder, *options), status)
    assert (folder / "loadtest.html").stat().st_size > 1000
    return output, json.loads((folder / "loadtest.json").read_text())


class Responses:
    """Answers like Triton; a subclass changes the answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def infer(self, request: ReceivedRequest) -> FakeAnswer:
        with self._lock:
            self.count += 1
            return self.change(fake_servers.scale_rows(request))

    def change(self, answer: FakeAnswer) -> FakeAnswer:
        return answer


@pytest.mark.slow
def test_every_wire_format_works_with_our_own_server(tmp_path: Path) -> None:
    """The server counted as many requests as the report has."""
    with live_server.serving() as server:
        output, document = run_load(
            tmp_path / "out", server.url, "--wire", "mixed", "--rows", "1,4", "--slo", "errors<0.1%, rate>1"
        )
        (stats,) = server.get("/v2/models/stats").json()["model_stats"]
        # random rows would be an alarm
        assert server.get("/v2/models/digits-10/gates/drift").json()["rows"] == 0
    total = document["total"]
    assert document["verdict"]["failures"] == []
    assert total["faults"] == {}
    assert {entry["kind"] for entry in document["kinds"]} == {
        f"{wire}, {rows}"
        for wire in ("json", "binary", "v1", "gates", "lesion")
        for rows in ("1 row", "4 rows")
    }
    assert sum(entry["good"] for entry in document["kinds"]) == total["good"] > 100
    # the measured time may end before the last answers arrive
    assert stats["inference_stats"]["success"]["count"] >= total["good"]
    assert "digits-10" in output


@pytest.mark.slow
def test_wrong_answers_fail_the_test(tmp_path: Path) -> None:
    class Liar(Responses):
        def change(self, answer: FakeAnswer) -> FakeAnswer:
            # some answers stay good, whatever part of the test is counted
            if self.count < 100 or self.count % 3 == 0:
                return answer
            if self.count % 3 == 1:
                return FakeAnswer({"error": "busy"}, 503)
            answer.body["outputs"][0]["data"][0] += 0.5
            return answer

    with fake_servers.fake_server(fake_servers.triton(Liar().infer)) as server:
        output, document = run_load(tmp_path / "out", server.url, "--slo", "errors<10%", status=1)
    faults = document["total"]["faults"]
    assert set(faults) == {"503", "wrong: logits differs from the reference answer"}
    assert document["total"]["good"] > 0
    assert document["verdict"]["wrong_answer"].startswith("json, 1 row: 'logits' at [0, 0]: expected ")
    assert "wrong answers: " in output
    assert "the SLO was missed: errors<10%" in output


@pytest.mark.slow
def test_faults_within_the_slo_pass(tmp_path: Path) -> None:
    """Refusals are allowed as far as the SLO allows errors."""

    class Busy(Responses):
        def change(self, answer: FakeAnswer) -> FakeAnswer:
            busy = self.count > 50 and self.count % 10 == 0
            return FakeAnswer({"error": "busy"}, 503) if busy else answer

    for limit, status in ((20, 0), (2, 1)):
        with fake_servers.fake_server(fake_servers.triton(Busy().infer)) as server:
            _, document = run_load(
                tmp_path / str(limit), server.url, "--slo", f"errors<{limit}%", status=status
            )
        assert set(document["total"]["faults"]) == {"503"}
        assert document["verdict"]["kept"] is (status == 0)


class Stalling(Responses):
    """Stalls once for some seconds, a while after the load has started."""

    def __init__(self, after: float, seconds: float) -> None:
        super().__init__()
        self._after, self._seconds = after, seconds
        self._first: float | None = None

    def change(self, answer: FakeAnswer) -> FakeAnswer:
        # the first 16 requests are for reference answers
        if self.count > 16:
            self._first = self._first or time.monotonic()
            if self._seconds and time.monotonic() > self._first + self._after:
                seconds, self._seconds = self._seconds, 0
                time.sleep(seconds)
        return answer


def count_slower(document: dict[str, Any], seconds: float) -> float:
    """How many answers took longer than this."""
    shares = [share for share, latency in document["distribution"] if latency <= seconds]
    return (1 - max(shares, default=0.0)) * float(document["total"]["good"])


@pytest.mark.thorough
@pytest.mark.slow
def test_a_stall_delays_every_request_that_was_due(tmp_path: Path) -> None:
    """In an open loop every request due in a stall waits; in a closed loop only those of its few users."""
    for loop, options in (("open", ("--rate", 50)), ("closed", ("--users", 2))):
        stalling = Stalling(after=1, seconds=2)
        with fake_servers.fake_server(fake_servers.triton(stalling.infer)) as server:
            _, document = run_load(tmp_path / loop, server.url, "--duration", "5s", *options)
        late = count_slower(document, 0.5)
        assert document["load"]["loop"] == loop
        # 50 per second are due in the first 1.5 s of the stall
        assert (late > 40) if loop == "open" else (late < 10)
        assert document["total"]["max"] > 1


@pytest.mark.thorough
@pytest.mark.slow
def test_a_known_capacity_is_found(tmp_path: Path) -> None:
    """A server that takes 20 ms per request, one after the other, answers less than 50 per second."""

    class Slow(Responses):
        def change(self, answer: FakeAnswer) -> FakeAnswer:
            time.sleep(0.02)
            return answer

    with fake_servers.fake_server(fake_servers.triton(Slow().infer)) as server:
        output, document = run_load(
            tmp_path / "out",
            server.url,
            *("--find-capacity", "--slo", "p99<300ms, errors<1%", "--step-seconds", "1s"),
        )
    capacity = document["capacity"]
    assert capacity["rate"] is not None, output
    assert 10 < capacity["rate"] < 55
    assert {step["held"] for step in capacity["steps"]} == {True, False}


@pytest.mark.slow
def test_a_server_recovers_before_the_next_rate() -> None:
    """After a rate of 50/s, 25/s starts when a request takes at most three times as long as without load."""
    result = subprocess.run(
        [sys.executable, "-c", SEARCH],
        cwd=live_server.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [50, math.inf, 0.5, 0.02, 25]


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_wrk_takes_over_where_the_processes_are_the_limit(tmp_path: Path, installed: bool) -> None:
    """The figures are those of the step that confirmed the capacity, although a check came after it."""
    if installed:
        program = tmp_path / "wrk"
        result = {"requests": 500, "duration": 1_000_000, "refused": 0, "lost": 0, "quantiles": [2000] * 1000}
        program.write_text(f"#!/bin/sh\necho '{json.dumps(result)}'\n")
        program.chmod(0o755)
    search = subprocess.run(
        [sys.executable, "-c", LIMITED_SEARCH, "http://127.0.0.1:9"],
        cwd=live_server.ROOT,
        env=live_server.environment() | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert search.returncode == 0, search.stderr
    document = json.loads(search.stdout)
    capacity = document["capacity"]
    # a random schedule may send somewhat fewer requests than are due
    assert 1900 <= capacity["rate"] <= 2300
    assert capacity["limited_by"] == "generator"
    (confirmed,) = [
        step for step in capacity["steps"] if step["held"] and step["due_rate"] == capacity["rate"]
    ][1:]
    assert document["counted"]["from"] == confirmed["from"]
    assert not capacity["steps"][-1]["held"]
    if installed:
        assert (capacity["wrk"]["rate"], capacity["wrk"]["p99"]) == (500, pytest.approx(0.002, rel=0.01))
        assert (capacity["wrk"]["connections"], capacity["wrk"]["kept"]) == (7, True)
    else:
        assert capacity["wrk"] is None


@pytest.mark.slow
def test_a_server_that_stops_fails_the_test(tmp_path: Path) -> None:
    with live_server.serving() as server:
        process = start(server.url, "--duration", "3s", "--report", tmp_path / "out", "--slo", "errors<1%")
        until = time.monotonic() + 30
        while server.get("/v2/models/stats").json()["model_stats"][0]["inference_count"] < 100:
            assert time.monotonic() < until
            time.sleep(0.05)
        # results start with a whole second
        time.sleep(1.2)
        server.stop()
        output = wait_for_end(process, 1)
    document = json.loads((tmp_path / "out" / "loadtest.json").read_text())
    assert "connection refused" in document["total"]["faults"]
    assert document["total"]["good"] > 0
    assert "the SLO was missed: errors<1%" in output


@pytest.mark.slow
def test_every_server_can_be_tested(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((64, 4), np.float32))
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((64, 4), np.float32))
    for name, routes, options, wires in (
        ("triton", fake_servers.triton(), ("--rate", 100), {"json", "binary"}),
        ("kserve", fake_servers.kserve(), ("--data", tmp_path / "rows.npy"), {"json", "v1"}),
        ("mlserver", fake_servers.mlserver(), ("--data", tmp_path / "rows.npz"), {"json"}),
    ):
        with fake_servers.fake_server(routes) as server:
            _, document = run_load(tmp_path / name, server.url, "--wire", "mixed", "--rows", "1,3", *options)
        assert document["target"]["server"] == name
        assert {entry["kind"].split(",")[0] for entry in document["kinds"]} == wires
        assert document["total"]["faults"] == {}
        assert document["total"]["good"] > 10


@pytest.mark.slow
def test_a_server_with_key_and_certificate_can_be_tested(tmp_path: Path) -> None:
    """A server with an API key and a self-signed certificate needs both options."""
    (cert, key), keys = certificate(tmp_path), tmp_path / "keys"
    keys.write_text("secret-of-ours\n")
    options = ("--tls-cert", cert, "--tls-key", key, "--api-keys-file", keys)
    with live_server.serving(*options) as server:
        assert "--insecure accepts it" in wait_for_end(start(server.url), 1)
        assert "pass a key with --api-key-file" in wait_for_end(start(server.url, "--insecure"), 1)
        _, document = run_load(
            tmp_path / "out", server.url, "--insecure", "--api-key-file", keys, "--duration", "3s"
        )
    assert document["total"]["faults"] == {}
    assert document["server"] is not None
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert not any("secret-of-ours" in text for text in written)
