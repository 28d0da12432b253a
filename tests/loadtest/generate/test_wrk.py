"""A load by wrk: what it sends, what it measures, and when it is left out."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from tests.support import fake_servers
from tests.support.fake_servers import FakeAnswer, ReceivedRequest
from turnpike.loadtest.generate.wrk import QUANTILES, WrkProcess, find_wrk, summarize
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo
from turnpike.loadtest.workload.workload import Workload

WRK = shutil.which("wrk")
RESULT = {
    "requests": 4000,
    "duration": 2_000_000,
    "refused": 0,
    "lost": 0,
    "quantiles": [*range(1000, 1000 + QUANTILES - 1), 90_000],
}
# a program in place of wrk: keeps what it was called with, and prints a result
STAND_IN = """#!/bin/sh
cp "$PWD"/* {folder}
echo "$@" > {folder}/arguments
{action}
"""


class Requests:
    """Counts the requests of a server like Triton by their bodies; refuses a share of them."""

    def __init__(self, refuse_every: int = 0) -> None:
        self._lock = threading.Lock()
        self._refuse_every = refuse_every
        self.bodies: list[bytes] = []

    def __call__(self, request: ReceivedRequest) -> FakeAnswer:
        with self._lock:
            self.bodies.append(request.body)
            # those of the reference answers are good
            refused = (
                self._refuse_every and len(self.bodies) > 3 and not len(self.bodies) % self._refuse_every
            )
        return FakeAnswer({"error": "busy"}, 503) if refused else fake_servers.scale_rows(request)


def write_stand_in(folder: Path, action: str) -> str:
    program = folder / "wrk"
    program.write_text(STAND_IN.format(folder=folder, action=action))
    program.chmod(0o755)
    return str(program)


def wait_for_end(process: WrkProcess) -> None:
    until = time.monotonic() + 30
    while process.running:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_distribution_of_wrk_becomes_a_summary() -> None:
    summary = summarize(RESULT)
    assert (summary.requests, summary.good, summary.seconds) == (4000, 4000, 2.0)
    assert summary.rate == 2000
    for share, seconds in ((0.5, 0.0015), (0.99, 0.00199), (0.999, 0.002), (1.0, 0.09)):
        assert summary.percentile(share) == pytest.approx(seconds, rel=0.011)
    assert not Slo.parse("p99<2.1ms, errors<0.1%").missed(summary)
    assert [limit.text for limit in Slo.parse("p99<1.9ms, max<80ms").missed(summary)] == [
        "p99<1.9ms",
        "max<80ms",
    ]


def test_requests_without_an_answer_are_errors() -> None:
    summary = summarize(RESULT | {"refused": 1000, "lost": 1000})
    assert summary.good == 3000
    assert summary.totals.faults == {"refused": 1000, "no answer": 1000}
    assert summary.errors == pytest.approx(0.4)


def test_no_requests_have_a_summary() -> None:
    summary = summarize(RESULT | {"requests": 0, "quantiles": [0] * QUANTILES})
    assert summary.requests == 0
    assert Slo.parse("p99<1s").missed(summary)


def test_wrk_is_not_used_with_tls_or_if_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_wrk(LoadPlan("http://127.0.0.1:1")) is None
    program = write_stand_in(tmp_path, "exit 0")
    assert find_wrk(LoadPlan("http://127.0.0.1:1")) == program
    assert find_wrk(LoadPlan("https://127.0.0.1:1")) is None


def test_wrk_gets_the_bytes_of_all_requests(tmp_path: Path) -> None:
    """Its result is the last line that is one; its folder, which may have a key, is removed."""
    program = write_stand_in(
        tmp_path, f"stat -c '%a %n' $PWD > {tmp_path}/folder; echo starting; echo '{json.dumps(RESULT)}'"
    )
    with fake_servers.fake_server(fake_servers.triton()) as server:
        plan = LoadPlan(server.url, samples=3, users=7, processes=2, api_key="sesame-7", timeout=2.5)
        payloads = Workload(plan).payloads("json")
        with WrkProcess(program, plan, payloads, 4) as process:
            wait_for_end(process)
            summary = process.summary()
    assert summary is not None
    assert (summary.requests, summary.rate) == (4000, 2000)
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments == ["-t2", "-c7", "-d4s", "--timeout=3s", "--script", "load.lua", server.url]
    requests = (tmp_path / "requests").read_bytes()
    for payload in payloads:
        assert payload.data in requests
    assert requests.count(b"Authorization: Bearer sesame-7\r\n") == 3
    assert set((tmp_path / "order").read_text().split()) == {"1", "2", "3"}
    mode, folder = (tmp_path / "folder").read_text().split()
    assert mode == "700"
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "action", ["echo unable to connect; exit 1", "exit 0", f"echo '{json.dumps(RESULT)}'; exit 1"]
)
def test_a_run_that_fails_has_no_summary(tmp_path: Path, action: str) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        plan = LoadPlan(server.url, samples=1)
        with WrkProcess(
            write_stand_in(tmp_path, action), plan, Workload(plan).payloads("json"), 1
        ) as process:
            wait_for_end(process)
            assert process.summary() is None


def test_the_end_of_the_block_ends_wrk(tmp_path: Path) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        plan = LoadPlan(server.url, samples=1)
        program = write_stand_in(tmp_path, "exec sleep 600")
        with WrkProcess(program, plan, Workload(plan).payloads("json"), 1) as process:
            assert process.running
        assert not process.running


@pytest.mark.skipif(WRK is None, reason="needs wrk: apt install wrk")
@pytest.mark.parametrize("wire", ["json", "binary"])
def test_a_server_gets_all_requests_of_wrk(wire: str) -> None:
    """It gets each payload as often as the others, byte for byte, and wrk counts what it refuses."""
    assert WRK is not None
    requests = Requests(refuse_every=10)
    with fake_servers.fake_server(fake_servers.triton(requests)) as server:
        plan = LoadPlan(server.url, samples=3, users=4, processes=2)
        payloads = Workload(plan).payloads(wire)  # type: ignore[arg-type]
        requests.bodies.clear()
        with WrkProcess(WRK, plan, payloads, 1) as process:
            wait_for_end(process)
            summary = process.summary()
    assert summary is not None
    sent = {payload.data: requests.bodies.count(payload.data) for payload in payloads}
    assert sum(sent.values()) == len(requests.bodies)
    assert min(sent.values()) > 0.7 * len(requests.bodies) / 3
    # requests that are on their way at the end have no answer
    assert len(requests.bodies) - 8 <= summary.good + summary.totals.faults["refused"] <= len(requests.bodies)
    assert summary.totals.faults["refused"] == pytest.approx(summary.requests / 10, rel=0.2)
    assert summary.totals.faults["no answer"] == 0
    assert 0 < summary.percentile(0.5) <= summary.percentile(0.99) <= summary.percentile(1.0) < 5
