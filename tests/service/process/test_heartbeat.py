"""Heartbeats: workers that are stuck or stopped are noticed and replaced, and good ones are left alone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.fake_service import (
    RunningService,
    answer_of,
    deployments_of,
    problems,
    running,
    write_file,
)
from tests.support.processes import is_alive
from tests.support.waiting import wait_until
from turnpike.service.process.heartbeat import Heartbeat


class FakeChannel:
    """Records beats, and answers them while `answers` is set."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.answers = True
        self.beats = 0

    def notify(self, name: str) -> None:
        assert name == "beat"
        self.beats += 1
        if self.answers:
            asyncio.get_running_loop().create_task(self.handlers["beat"](None))


def watch(scenario: Any, limit: float = 1) -> None:
    """Run a scenario with a channel, its heartbeat, and the task that watches it."""

    async def run() -> None:
        channel: Any = FakeChannel()
        silences: list[float] = []
        heartbeat = Heartbeat(channel, limit, lambda: silences.append(heartbeat.seconds))
        up = asyncio.Event()
        up.set()
        watching = asyncio.create_task(heartbeat.run(up))
        await scenario(channel, heartbeat, watching, silences)
        watching.cancel()

    asyncio.run(run())


@pytest.mark.slow
def test_silence_is_counted_and_ends_with_an_answer() -> None:
    async def scenario(channel: FakeChannel, heartbeat: Heartbeat, watching: Any, silences: Any) -> None:
        await asyncio.sleep(0.25)
        assert channel.beats >= 2
        assert silences == []
        channel.answers = False
        await asyncio.wait_for(heartbeat.silent.wait(), 5)
        assert silences == [pytest.approx(0.3)]
        assert not heartbeat.answering.is_set()
        await channel.handlers["beat"](None)
        channel.answers = True
        await asyncio.wait_for(heartbeat.answering.wait(), 5)
        assert heartbeat.seconds == 0
        assert not heartbeat.silent.is_set()
        channel.answers = False
        await asyncio.wait_for(watching, 5)
        assert heartbeat.seconds == pytest.approx(1)
        assert len(silences) == 2

    watch(scenario)


@pytest.mark.parametrize("turns", range(4))
def test_a_cancelled_heartbeat_ends(turns: int) -> None:
    """Also shortly after an answer: otherwise it would suspend the worker that takes the number over."""

    async def scenario(channel: FakeChannel, heartbeat: Heartbeat, watching: Any, silences: Any) -> None:
        channel.answers = False
        await asyncio.sleep(0.02)
        await channel.handlers["beat"](None)
        for _ in range(turns):
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait([watching], timeout=0.2)
        assert watching.done()

    watch(scenario)


@pytest.mark.slow
def test_one_beat_is_sent_to_a_silent_worker() -> None:
    """A worker that is stopped for long finds one beat, not thousands."""

    async def scenario(channel: FakeChannel, heartbeat: Heartbeat, watching: Any, silences: Any) -> None:
        channel.answers = False
        await asyncio.wait_for(watching, 5)
        assert channel.beats == 1

    watch(scenario)


@pytest.mark.slow
def test_time_in_which_the_supervisor_does_not_run_is_not_counted() -> None:
    """Its event loop stands still for longer than the limit while it waits for an answer."""

    async def scenario(channel: FakeChannel, heartbeat: Heartbeat, watching: Any, silences: Any) -> None:
        channel.answers = False
        await asyncio.sleep(0.02)
        assert channel.beats == 1
        time.sleep(1.2)
        await asyncio.sleep(0.01)
        assert heartbeat.seconds == pytest.approx(0.1)
        assert silences == []

    watch(scenario)


def test_without_a_limit_a_worker_becomes_silent_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnpike.service.process.heartbeat.BEAT_SECONDS", 0.01)
    monkeypatch.setattr("turnpike.service.process.heartbeat.SILENT_SECONDS", 0.05)

    async def scenario(channel: FakeChannel, heartbeat: Heartbeat, watching: Any, silences: Any) -> None:
        channel.answers = False
        await asyncio.sleep(0.5)
        assert len(silences) == 1
        assert not watching.done()

    watch(scenario, limit=0)


def killed(number: int, pid: int, seconds: float) -> str:
    return (
        f"worker {number} (process {pid}) has not answered for {seconds:g} s: "
        "it is killed, and a new one takes its place"
    )


def stop_one(service: RunningService, count: int = 2) -> tuple[int, int]:
    """Stop one of the workers with SIGSTOP; the process ids of that one and of another."""
    pids = sorted(service.pids(count))
    os.kill(pids[0], signal.SIGSTOP)
    return pids[0], pids[-1]


def test_a_stopped_worker_is_replaced(tmp_path: Path) -> None:
    """The log says which one, for how long it was silent, and what happens."""
    with running(tmp_path, workers=2, worker_seconds=1) as service:
        stopped, other = stop_one(service)
        wait_until(lambda: not is_alive(stopped))
        wait_until(lambda: len(service.pids(2) - {other}) == 1)
        number = 1 if killed(1, stopped, 1) in problems(service) else 2
        assert problems(service) == [
            f"worker {number} (process {stopped}) has not answered for 0.3 s; it is replaced after 1 s; "
            "until it answers, it gets no new connections",
            killed(number, stopped, 1),
            f"worker {number} (process {stopped}) was ended by SIGKILL; a new one starts in 0.1 s",
        ]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


@pytest.mark.slow
def test_the_only_worker_is_replaced_when_its_event_loop_is_stuck(tmp_path: Path) -> None:
    """A client that connects meanwhile waits, and the new worker answers it."""
    with running(tmp_path, workers=1, worker_seconds=1) as service:
        (stuck,) = service.pids(1)
        parts = urlsplit(service.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as client:
            client.sendall(b"GET /block?60 HTTP/1.1\r\nhost: x\r\n\r\n")
            wait_until(lambda: any("has not answered" in line for line in problems(service)))
            assert service.get("/")["pid"] != stuck
            assert client.recv(1000) == b""
        assert killed(1, stuck, 1) in problems(service)


@pytest.mark.slow
def test_a_busy_worker_is_not_replaced(tmp_path: Path) -> None:
    """Half of the limit in the event loop is no silence in the end."""
    with running(tmp_path, workers=1, worker_seconds=2) as service:
        before = service.pids(1)
        for _ in range(2):
            service.get("/block?1")
        assert service.pids(1) == before


@pytest.mark.slow
def test_workers_survive_a_stop_of_all_processes(tmp_path: Path) -> None:
    """Longer than the limit, as by a terminal or a suspended machine. The workers stop and continue first."""
    with running(tmp_path, workers=2, worker_seconds=1) as service:
        workers = service.pids(2)
        processes = [*workers, service.process.pid]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
            # the supervisor has sent a beat to the stopped workers when it is stopped itself
            time.sleep(0.1)
        time.sleep(1.2)
        for process in processes:
            os.kill(process, signal.SIGCONT)
            time.sleep(0.1)
        time.sleep(0.3)
        assert service.pids(2) == workers
        assert not any("killed" in line for line in problems(service))


@pytest.mark.slow
def test_a_load_takes_longer_than_the_limit(tmp_path: Path) -> None:
    """As long as the workers answer heartbeats, loading may take any time."""
    gate = tmp_path / "gate"
    gate.touch()
    models = tmp_path / "models"
    models.mkdir()
    with running(models, workers=2, worker_seconds=1, env={"FAKE_GATE": str(gate)}) as service:
        before = service.pids(2)
        gate.unlink()
        write_file(models, "slow", 1)
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(service.get, "/ask?load=slow")
            time.sleep(1.5)
            assert not answer.done()
            gate.touch()
            assert answer.result(5)["answer"] == {"ok": True}
        assert service.pids(2) == before


@pytest.mark.slow
def test_a_change_does_not_wait_for_a_stopped_worker(tmp_path: Path) -> None:
    """The answer names it. Once it is replaced, the new worker serves what the others do."""
    with running(tmp_path, workers=2, worker_seconds=2) as service:
        stopped, other = stop_one(service)
        write_file(service.models, "m", 1)
        answer = answer_of(service, other, "/ask?load=m")["answer"]
        assert is_alive(stopped)
        assert answer["ok"]
        assert answer["warning"].endswith(" s; it is replaced after 2 s")
        assert "has not answered for 0." in answer["warning"]
        wait_until(lambda: not is_alive(stopped))
        (new,) = service.pids(2) - {other}
        assert "m" in answer_of(service, new, "/deployments")["deployments"][-1]["models"]


@pytest.mark.slow
def test_a_worker_that_continues_is_brought_up_to_date_first(tmp_path: Path) -> None:
    """It gets no new connection before it serves what the others do, although that takes a while."""
    env = {"FAKE_COMMIT_SECONDS": "0.7"}
    with running(tmp_path, workers=2, worker_seconds=4, env=env) as service:
        stopped, other = stop_one(service)
        write_file(service.models, "m", 1)
        assert "warning" in answer_of(service, other, "/ask?load=m")["answer"]
        os.kill(stopped, signal.SIGCONT)
        answers = []
        while not answers or answers[-1]["pid"] != stopped:
            answers.append(service.get("/deployments"))
        assert {answer["pid"] for answer in answers[:-1]} == {other}
        assert "m" in answers[-1]["deployments"][-1]["models"]
        wait_until(lambda: any(line.endswith("answers again") for line in service.messages))
        assert service.get("/ask?load=m")["answer"] == {"ok": True}


@pytest.mark.slow
def test_counters_do_not_wait_for_a_silent_worker(tmp_path: Path) -> None:
    """Its last report counts, and the number of workers that answer says so."""
    with running(tmp_path, workers=2, worker_seconds=4) as service:
        service.pids(2)
        assert len(service.get("/ask?snapshots")["answer"]) == 2
        stopped, other = stop_one(service)
        wait_until(lambda: problems(service))
        started = time.monotonic()
        counts = [snapshot["counters"] for snapshot in answer_of(service, other, "/ask?snapshots")["answer"]]
        assert time.monotonic() - started < 1.5
        assert sum(count["workers"] for count in counts) == 2
        assert sum(count["answering"] for count in counts) == 1
        os.kill(stopped, signal.SIGCONT)
        assert all(count["answered"]["/"]["GET"]["200"] > 0 for count in counts)


def test_no_connection_is_lost_while_a_worker_is_stopped(tmp_path: Path) -> None:
    """A thousand new connections are all answered by the other worker."""
    with running(tmp_path, workers=2, worker_seconds=30) as service:
        stopped, other = stop_one(service)
        parts = urlsplit(service.url)

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

        async def scenario() -> list[bytes]:
            return await asyncio.gather(*(ask() for _ in range(1000)))

        answers = asyncio.run(asyncio.wait_for(scenario(), 20))
        assert len(answers) == 1000
        assert all(b'"pid": %d' % other in answer for answer in answers)
        os.kill(stopped, signal.SIGCONT)
        service.pids(2)


def test_a_stopped_worker_continues_to_drain(tmp_path: Path) -> None:
    """SIGTERM ends the service at once with status 0, and the request of the stopped worker is answered."""
    with running(tmp_path, workers=2) as service:
        service.pids(2)
        parts = urlsplit(service.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += client.recv(1000)
            pid = int(answer.partition(b'"pid": ')[2].partition(b",")[0])
            client.sendall(b"GET /slow?0.3 HTTP/1.1\r\nhost: x\r\n\r\n")
            time.sleep(0.1)
            os.kill(pid, signal.SIGSTOP)
            service.signal(signal.SIGTERM)
            client.settimeout(5)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert service.wait(4) == 0
        assert problems(service) == []


@pytest.mark.slow
def test_a_scan_while_the_only_worker_is_silent_fails_no_file(tmp_path: Path) -> None:
    """It waits for the worker that replaces the silent one."""
    models = tmp_path / "models"
    models.mkdir()
    with running(models, worker_seconds=1) as service:
        stop_one(service, 1)
        wait_until(lambda: problems(service))
        write_file(models, "m", 1)
        service.signal(signal.SIGHUP)
        wait_until(lambda: "serving m/1" in service.messages)
        wait_until(lambda: "m" in service.get("/deployments")["deployments"][-1]["models"])


@pytest.mark.slow
def test_a_load_that_makes_its_worker_silent_for_a_moment_fails_no_file(tmp_path: Path) -> None:
    """It would do so in the second attempt too."""
    env = {"FAKE_HANG_ON": "m/1", "FAKE_HANG_SECONDS": "1"}
    models = tmp_path / "models"
    models.mkdir()
    with running(models, worker_seconds=2, env=env) as service:
        write_file(models, "m", 1)
        service.signal(signal.SIGHUP)
        wait_until(lambda: sum(line.startswith("serving ") for line in service.messages) == 2)
        assert "serving m/1" in service.messages
        assert any("has not answered" in line for line in problems(service))


@pytest.mark.slow
def test_a_file_whose_loading_hangs_is_not_served(tmp_path: Path) -> None:
    """Both workers hang and are replaced, the new ones hang too, and then the file counts as bad."""
    write_file(tmp_path, "m", 1)
    with running(tmp_path, workers=2, worker_seconds=1, env={"FAKE_HANG_ON": "m/2"}) as service:
        write_file(tmp_path, "m", 2)
        service.signal(signal.SIGHUP)
        wait_until(lambda: service.messages.count("serving m/1") == 2)
        for deployments in deployments_of(service):
            assert [model["version"] for model in deployments[-1]["models"]["m"]] == [1]
            (failed,) = deployments[-1]["failed"]
            assert (failed["version"], failed["reason"]) == (2, "a worker ended while it was loaded")


@pytest.mark.slow
def test_a_stuck_worker_without_connections_cuts_nothing_off(tmp_path: Path) -> None:
    """It is killed at the end of the drain, and the exit status is 0, although it was silent before."""
    with running(tmp_path, worker_seconds=12, drain_seconds=0, env={"FAKE_HANG_AFTER": "1"}) as service:
        (pid,) = service.pids(1)
        time.sleep(5)
        service.signal(signal.SIGTERM)
        assert service.wait(9) == 0
        assert problems(service)[-1] == f"worker 1 (process {pid}) is killed: it has not ended within 5 s"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_worker_that_hangs_at_its_start_ends_the_service(tmp_path: Path) -> None:
    """It has ten times the limit."""
    env = {"FAKE_FAULT": "hang"}
    with running(tmp_path, ready=False, worker_seconds=1, env=env) as service:
        assert service.wait(20) == 1
        assert re.fullmatch(
            r"error: worker 1 \(process \d+\) has not started within 10 s", service.messages[-1]
        ), service.messages


@pytest.mark.slow
def test_workers_survive_a_busy_machine(tmp_path: Path) -> None:
    """Twenty processes per CPU compute for several times the limit, and the workers answer requests."""
    with running(tmp_path, workers=2, worker_seconds=2) as service:
        before = service.pids(2)
        busy = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(20 * (os.cpu_count() or 1))
        ]
        try:
            end = time.monotonic() + 8
            while time.monotonic() < end:
                assert service.get("/", seconds=30)["pid"] in before
        finally:
            for process in busy:
                process.kill()
                process.wait()
        assert service.pids(2) == before
        assert not any("killed" in line for line in problems(service))
