"""Supervisor and workers as real processes: start, signals, crashes, replacements and scans."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.fake_service import (
    FakeApp,
    RunningService,
    answer_of,
    deployments_of,
    problems,
    running,
    status_of,
    write_file,
)
from tests.support.live_server import free_port
from tests.support.waiting import wait_until
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.listener import listen
from turnpike.service.process.ports import Ports
from turnpike.service.process.supervisor import Supervisor, raise_descriptor_limit
from turnpike.service.process.worker import SWITCH_SECONDS
from turnpike.service.process.worker_pool import WorkerPool
from turnpike.service.telemetry.log_writer import log_writer


def test_all_workers_serve_and_stop_cleanly(tmp_path: Path) -> None:
    """The log has the address, all workers answer, and a signal stops them with status 0."""
    with running(tmp_path, workers=2) as service:
        assert service.url.startswith("http://127.0.0.1:")
        assert service.messages[-1] == f"turnpike serves {service.url} (no model yet)"
        pids = service.pids(2)
        assert service.process.pid not in pids
        (processes,) = [line for line in service.messages if line.startswith("processes: ")]
        assert processes.startswith(f"processes: supervisor: {service.process.pid}, worker 1: ")
        assert {int(pid) for pid in re.findall(r"worker \d: (\d+)", processes)} == pids
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        listen("127.0.0.1", urlsplit(service.url).port or 0).close()
        assert problems(service) == []


def test_the_log_names_the_other_things_in_a_folder_without_models(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"notes{number}.md").touch()
    with running(tmp_path) as service:
        (warning,) = [line for line in service.messages if line.startswith("no model in ")]
        assert "which holds other things (notes0.md, notes1.md, notes2.md and 2 more): if it is" in warning


@pytest.mark.slow
def test_the_log_says_that_the_service_stops_and_has_stopped(tmp_path: Path) -> None:
    """The supervisor says it once, however many workers there are."""
    with running(tmp_path, workers=2, drain_wait=0.5) as service, PendingRequest(service, "/slow?1"):
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert [line for line in service.messages if line.startswith("turnpike ")][1:] == [
            "turnpike is stopping: open connections: 1; new ones are accepted for 0.5 s, "
            "and requests then have 30 s to finish",
            "turnpike has stopped: no request was cut off",
        ]
        assert service.messages[-1].startswith("turnpike has stopped")


def test_objects_of_libraries_are_excluded_from_garbage_collection(tmp_path: Path) -> None:
    """The collector ignores objects from before the first request: a full collection stops all threads."""
    with running(tmp_path) as service:
        collector = service.get("/collected")
        assert collector["objects"] < 5000
        # off during the start
        assert collector["enabled"]


def test_the_switch_interval_is_short(tmp_path: Path) -> None:
    """A thread that runs Python code delays requests by a tenth of the default switch interval."""
    with running(tmp_path) as service:
        assert service.get("/switch")["seconds"] == pytest.approx(SWITCH_SECONDS)


@contextlib.contextmanager
def loading_a_slow_model(tmp_path: Path) -> Iterator[tuple[RunningService, Path]]:
    """A service whose model "slow" takes as long to load as the file is missing, beside the model "good"."""
    gate, models, port = tmp_path / "gate", tmp_path / "models", free_port()
    write_file(models, "slow", 1)
    write_file(models, "good", 1)
    with running(models, ready=False, env={"FAKE_GATE": str(gate)}, port=port, workers=2) as service:
        service.url = f"http://127.0.0.1:{port}"
        wait_until(lambda: status_of(service, "/") == 200)
        yield service, gate


def test_requests_get_503_while_models_load(tmp_path: Path) -> None:
    with loading_a_slow_model(tmp_path) as (service, gate):
        assert status_of(service, "/ready") == 503
        gate.touch()
        wait_until(lambda: status_of(service, "/ready") == 200)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_models_are_served_as_they_get_ready(tmp_path: Path) -> None:
    """All workers serve the quick one while the slow one loads, and load others on request.

    The service is not ready, and does not say that it serves, before each of them is loaded.
    """
    with loading_a_slow_model(tmp_path) as (service, gate):
        wait_until(lambda: "serving good/1; still loading slow/1" in service.messages)
        write_file(service.models, "other", 1)
        assert service.get("/ask?load=other")["answer"] == {"ok": True}
        for deployments in deployments_of(service):
            assert sorted(deployments[-1]["models"]) == ["good", "other"]
        assert status_of(service, "/ready") == 503
        assert not any(message.startswith("turnpike serves") for message in service.messages)
        gate.touch()
        wait_until(lambda: any(message.startswith("turnpike serves") for message in service.messages))
        assert "serving good/1, slow/1, other/1" in service.messages
        assert status_of(service, "/ready") == 200


def test_a_replacement_serves_while_a_model_loads(tmp_path: Path) -> None:
    """It serves what the others do, and then the slow model too."""
    with loading_a_slow_model(tmp_path) as (service, gate):
        wait_until(lambda: "serving good/1; still loading slow/1" in service.messages)
        before = service.pids(2)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: service.get("/")["pid"] not in before, allowed=OSError)
        gate.touch()
        wait_until(lambda: any(message.startswith("turnpike serves") for message in service.messages))
        assert all("slow" in deployments[-1]["models"] for deployments in deployments_of(service))


def test_a_signal_while_models_load_stops_the_service(tmp_path: Path) -> None:
    """Stopping does not wait for a model that takes forever to load, nor for who waits for it."""
    with loading_a_slow_model(tmp_path) as (service, _), PendingRequest(service, "/ask?load=slow") as client:
        service.signal(signal.SIGTERM)
        client.settimeout(10)
        assert client.recv(1000).startswith(b"HTTP/1.1 503")
        assert service.wait(20) == 0
        assert problems(service) == []


@pytest.mark.slow
def test_a_hanging_worker_counts_with_its_last_report(tmp_path: Path) -> None:
    """Counters never decrease, and a scrape does not wait long for a worker that hangs."""
    with running(tmp_path, workers=2) as service:
        pids = service.pids(2)
        time.sleep(1.5)
        os.kill(min(pids), signal.SIGSTOP)
        try:
            counts = [
                snapshot["counters"] for snapshot in answer_of(service, max(pids), "/ask?snapshots")["answer"]
            ]
        finally:
            os.kill(min(pids), signal.SIGCONT)
        assert [count["workers"] for count in counts] == [1, 1]
        assert all(count["answered"]["/"]["GET"]["200"] > 0 for count in counts)


@pytest.mark.slow
def test_a_request_over_drain_seconds_is_cut_off(tmp_path: Path) -> None:
    """The exit status is 1, and the log has the number of requests."""
    with running(tmp_path, drain_seconds=0.2) as service, PendingRequest(service, "/slow?30"):
        service.signal(signal.SIGTERM)
        assert service.wait(5) == 1
        assert problems(service) == [
            "1 requests were cut off after 0.2 seconds",
            "turnpike has stopped with status 1: requests were cut off",
        ]


@pytest.mark.slow
def test_a_hanging_worker_is_killed(tmp_path: Path) -> None:
    """It cannot even handle the signal, so the supervisor kills it."""
    with running(tmp_path, drain_seconds=0.2) as service, PendingRequest(service, "/block?60"):
        service.signal(signal.SIGTERM)
        assert service.wait(12) == 1


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    """The exit status is 1 if a request was running."""
    with running(tmp_path, workers=2) as service, PendingRequest(service, "/slow?30"):
        workers = psutil.Process(service.process.pid).children()
        service.signal(signal.SIGINT)
        # the worker without a request ends
        wait_until(lambda: sum(worker.is_running() for worker in workers) == 1)
        assert service.process.poll() is None
        service.signal(signal.SIGINT)
        assert service.wait(3) == 1
        (killed,) = [line for line in problems(service) if "is killed" in line]
        assert killed.endswith(": a second signal came")


class PendingRequest:
    """A request whose response is not read until the block ends."""

    def __init__(self, service: RunningService, path: str) -> None:
        parts = urlsplit(service.url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        time.sleep(0.2)

    def __enter__(self) -> socket.socket:
        return self.socket

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("device", 2, "error: no such device here"),
        # where the kernel does not count how often memory was short, the message says that it may have been
        ("crash", 1, r"error: a worker was ended by SIGKILL( \(perhaps .*\))? before it could serve"),
        ("bug", 1, "error: a worker ended with status 1 before it could serve"),
    ],
)
def test_a_failed_start_is_reported(tmp_path: Path, fault: str, status: int, message: str) -> None:
    """The message has the reason that the worker reported, or else its exit status."""
    with running(tmp_path, ready=False, workers=2, env={"FAKE_FAULT": fault}) as service:
        assert service.wait() == status
        assert any(re.fullmatch(message, line) for line in service.messages)
        assert service.url == ""


@pytest.mark.slow
def test_replacements_of_dying_workers_slow_down(tmp_path: Path) -> None:
    """The pause doubles each time. The supervisor keeps running."""
    with running(tmp_path, env={"FAKE_LIFE": "0.02"}) as service:
        wait_until(lambda: len(problems(service)) >= 3)
        assert [line.split("; ")[1] for line in problems(service)[:3]] == [
            f"a new one starts in {pause} s" for pause in (0.1, 0.2, 0.4)
        ]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Two workers and a repository that each test may add to."""
    with running(tmp_path_factory.mktemp("models"), workers=2) as service:
        yield service


def test_a_hang_up_signal_rescans_the_repository(two_workers: RunningService) -> None:
    write_file(two_workers.models, "hung", 3)
    two_workers.signal(signal.SIGHUP)
    wait_until(lambda: any("hung/3" in message for message in two_workers.messages))
    wait_until(
        lambda: all("hung" in deployments[-1]["models"] for deployments in deployments_of(two_workers))
    )


def test_poll_finds_new_files(tmp_path: Path) -> None:
    with running(tmp_path, poll=0.05) as service:
        write_file(tmp_path, "m", 1)
        wait_until(lambda: "serving m/1" in service.messages)


def test_a_failed_scan_changes_nothing(tmp_path: Path) -> None:
    """If the repository cannot be read, served models stay. A later scan finds it again."""
    write_file(tmp_path / "models", "m", 1)
    with running(tmp_path / "models", poll=0.05) as service:
        (tmp_path / "models").rename(tmp_path / "away")
        wait_until(lambda: problems(service))
        (tmp_path / "away").rename(tmp_path / "models")
        write_file(tmp_path / "models", "m", 2)
        wait_until(lambda: "serving m/2" in service.messages)
        assert service.process.poll() is None


def test_a_bug_in_a_scan_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        with listen("127.0.0.1", 0) as listener:
            supervisor = Supervisor(Settings(models=tmp_path), Ports.of(1, listener), FakeApp)
            monkeypatch.setattr(supervisor._rollout, "rescan", broken)
            await supervisor._rescan(explicit=False)

    asyncio.run(scenario())
    assert "the scan of the repository failed" in caplog.text


def test_a_worker_that_lacks_a_file_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollout reloads once for each deployment, then only the worker tries again."""
    failed = [{"name": "m", "version": 1, "reason": "its file changed while it was loaded"}]
    answers = [failed, failed, failed, failed, []]
    serials: list[int] = []
    reloaded: list[set[str]] = []
    rollout = SimpleNamespace(deployment_record={"serial": 1}, deployed=asyncio.Event())

    async def ask(name: str, deployment: dict[str, int]) -> dict[str, Any]:
        assert name == "commit"
        serials.append(deployment["serial"])
        return {"failed": answers[len(serials) - 1]}

    async def reload_failed(names: set[str]) -> None:
        reloaded.append(names)
        rollout.deployment_record = {"serial": 2}

    async def scenario() -> None:
        with listen("127.0.0.1", 0) as listener:
            supervisor = Supervisor(Settings(models=tmp_path), Ports.of(1, listener), FakeApp)
            monkeypatch.setattr(supervisor, "_rollout", rollout)
            rollout.reload_failed = reload_failed
            rollout.deployed.set()
            worker: Any = SimpleNamespace(channel=SimpleNamespace(ask=ask))
            await asyncio.wait_for(supervisor._bring_up_to_date(worker, pause=0), 5)

    asyncio.run(scenario())
    assert serials == [1, 2, 2, 2, 2]
    assert reloaded == [{"m"}, {"m"}]


def test_a_worker_that_cannot_be_updated_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would never accept a connection."""
    calls: list[str] = []

    async def broken(_: object) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        with listen("127.0.0.1", 0) as listener:
            pool = Supervisor(Settings(models=tmp_path), Ports.of(1, listener), FakeApp)._workers
            monkeypatch.setattr(pool, "_bring_up_to_date", broken)
            pool._started.set()
            up = asyncio.Event()
            up.set()
            worker: Any = SimpleNamespace(
                name="worker 3 (process 333)",
                up=up,
                heartbeat=SimpleNamespace(answering=up),
                kill=lambda: calls.append("kill"),
                accept=lambda: calls.append("accept"),
            )
            await pool._admit(worker)

    asyncio.run(scenario())
    assert calls == ["kill"]
    assert "worker 3 (process 333) could not be brought up to date" in caplog.text


def test_invalid_tls_files_prevent_the_start(tmp_path: Path) -> None:
    """The log has no address, and the exit status is that of an invalid setting."""
    (tmp_path / "file").write_text("hello")
    pair = {"tls_cert": str(tmp_path / "file"), "tls_key": str(tmp_path / "file")}
    with running(tmp_path, ready=False, **pair) as service:
        assert service.wait() == 2
        assert service.messages == [
            f"error: --tls-cert: expected a certificate chain (PEM), got '{tmp_path / 'file'}'"
        ]


def test_load_and_unload_reach_all_workers(two_workers: RunningService) -> None:
    """Any worker may get the request, and it gets the answer."""
    write_file(two_workers.models, "m", 1)
    assert two_workers.get("/ask?load=m")["answer"] == {"ok": True}
    assert all("m" in deployments[-1]["models"] for deployments in deployments_of(two_workers))
    assert two_workers.get("/ask?unload=m")["answer"] == {"ok": True}
    unloaded = {"name": "m", "version": 1, "reason": "unloaded"}
    assert all(unloaded in deployments[-1]["left_out"] for deployments in deployments_of(two_workers))
    assert not two_workers.get("/ask?load=absent")["answer"]["ok"]


def test_connections_are_distributed_evenly(two_workers: RunningService) -> None:
    """All connections come at once."""
    parts = urlsplit(two_workers.url)

    async def answering_pid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b'"pid": ')
        return int((await reader.readuntil(b","))[:-1])

    async def scenario() -> list[int]:
        streams = await asyncio.gather(
            *(asyncio.open_connection(parts.hostname, parts.port) for _ in range(60))
        )
        pids = [await answering_pid(*stream) for stream in streams]
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in streams))
        return pids

    pids = asyncio.run(scenario())
    counts = [pids.count(pid) for pid in set(pids)]
    assert len(counts) == 2
    assert max(counts) - min(counts) <= 10


@pytest.mark.slow
def test_the_port_is_closed_while_the_last_requests_finish(tmp_path: Path) -> None:
    """New clients are refused at once and do not have to wait."""
    with running(tmp_path, workers=2) as service, PendingRequest(service, "/slow?1.5") as client:
        service.signal(signal.SIGTERM)
        time.sleep(0.7)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(client.getpeername(), 0.5)
        client.settimeout(5)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert service.wait() == 0


def test_the_descriptor_limit_is_raised() -> None:
    """The soft limit is often far below the hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(500, before[1]), before[1]))
    try:
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_counts_of_a_scrape_are_not_lost(tmp_path: Path) -> None:
    """The worker is killed right after a scrape."""
    with running(tmp_path, workers=1) as service:
        (first,) = service.pids(1)
        time.sleep(1.2)

        def answered() -> int:
            snapshots = service.get("/ask?snapshots")["answer"]
            return sum(
                snapshot["counters"]["answered"].get("/", {}).get("GET", {}).get("200", 0)
                for snapshot in snapshots
            )

        for _ in range(50):
            service.get("/")
        shown = answered()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: service.pids(1) != {first})
        assert shown >= 50
        assert answered() >= shown


def test_lines_that_the_supervisor_dropped_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a log of its own, beside those of its workers."""

    async def count() -> int:
        with listen("127.0.0.1", 0) as listener:
            pool = WorkerPool(
                Settings(), Ports.of(1, listener), lambda *_: None, {}, lambda _: asyncio.sleep(0)
            )
            snapshots = await pool._snapshots(None)
        return sum(snapshot["counters"]["log_lines_dropped"] for snapshot in snapshots)

    assert asyncio.run(count()) == 0
    monkeypatch.setattr(log_writer, "dropped", 7)
    assert asyncio.run(count()) == 7
