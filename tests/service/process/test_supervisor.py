"""Supervisor and workers as processes: whatever ends, and however, no request is lost that need not be."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from service.config.settings import Settings
from service.http.listener import listen
from service.process.supervisor import Supervisor, raise_descriptor_limit
from service.process.worker import SWITCH_SECONDS
from tests.support.fake_service import Running, SmallApp, running, until
from tests.support.load_clients import Load, Shot, Tally

# some at once, some after a moment: there is always one under way
SHOTS = [Shot(f"/slow?{seconds}", b"hello") for seconds in (0, 0.003, 0.007, 0.013)]


def loaded(service: Running, act: Any, *, fresh: bool, seconds: float = 0.3, connections: int = 16) -> Tally:
    """The tally of a load during which something is done, until the service has ended or the time is over."""
    load = Load(service.url, SHOTS, connections, fresh=fresh)

    async def story() -> None:
        running = asyncio.create_task(load.run(20))
        await asyncio.sleep(seconds)
        act()
        end = time.monotonic() + 0.8
        while service.process.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.01)
        load.stopping = True
        await running

    asyncio.run(story())
    assert load.tally.wrong == []
    return load.tally


def unsaid(service: Running) -> list[str]:
    """What was logged as going wrong."""
    return [line["message"] for line in service.lines if line.get("level") not in ("info", "debug")]


def test_it_serves_and_ends_in_peace(tmp_path: Path) -> None:
    """One line says where; every worker answers; a signal ends all with status 0, and frees the port."""
    with running(tmp_path, workers=2) as service:
        assert service.url.startswith("http://127.0.0.1:")
        assert service.messages[-1] == f"turnpike serves {service.url} (no model yet)"
        assert len(service.pids(2)) == 2
        assert service.process.pid not in service.pids(2)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        listen("127.0.0.1", urlsplit(service.url).port or 0).close()
        assert unsaid(service) == []


def test_libraries_are_not_collected_again_and_again(tmp_path: Path) -> None:
    """What was there before the first request is left alone by the collector, whose look stops all."""
    with running(tmp_path) as service:
        assert service.get("/collected")["objects"] < 5000


def test_a_thread_that_computes_in_python_keeps_nobody_waiting_for_long(tmp_path: Path) -> None:
    """The interpreter changes threads ten times as often as it does by itself."""
    with running(tmp_path) as service:
        assert service.get("/switch")["seconds"] == pytest.approx(SWITCH_SECONDS)


def test_it_answers_before_it_is_ready(tmp_path: Path) -> None:
    """While models load, the port answers and says that it is not ready."""
    gate = tmp_path / "gate"
    models = tmp_path / "models"
    place(models, "m", 1)
    port = free_port()
    with running(models, ready=False, env={"SMALL_GATE": str(gate)}, port=port) as service:
        service.url = f"http://127.0.0.1:{port}"
        until(lambda: status_of(service, "/") == 200)
        assert status_of(service, "/ready") == 503
        gate.touch()
        until(lambda: status_of(service, "/ready") == 200)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_a_signal_ends_it_while_models_load(tmp_path: Path) -> None:
    """Nobody has to wait for a model that takes for ever."""
    models = tmp_path / "models"
    place(models, "m", 1)
    port = free_port()
    with running(models, ready=False, env={"SMALL_GATE": str(tmp_path / "never")}, port=port) as service:
        service.url = f"http://127.0.0.1:{port}"
        until(lambda: status_of(service, "/") == 200)
        service.signal(signal.SIGTERM)
        assert service.wait(8) == 0


def place(models: Path, name: str, version: int) -> None:
    """A file where a model would be."""
    folder = models / name / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"a model")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def status_of(service: Running, path: str) -> int:
    """The status of an answer, 0 where there is none."""
    try:
        service.get(path)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0
    return 200


@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "fresh"])
def test_a_signal_under_load_loses_nothing(tmp_path: Path, fresh: bool) -> None:
    """With connections that stay and with one for each request, all that was sent is answered."""
    with running(tmp_path, workers=2) as service:
        tally = loaded(service, lambda: service.signal(signal.SIGTERM), fresh=fresh)
        assert service.wait() == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}
    assert len(tally.good) > 100
    assert tally.refused


@pytest.mark.endurance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "fresh"])
def test_fifty_signals_under_load_lose_nothing(tmp_path: Path, fresh: bool) -> None:
    """The same, again and again, at different moments."""
    for turn in range(50):
        with running(tmp_path, workers=1 + turn % 3, drain_wait=0.1 * (turn % 2)) as service:
            tally = loaded(
                service, lambda: service.signal(signal.SIGTERM), fresh=fresh, seconds=0.2 + 0.003 * turn
            )
            assert service.wait() == 0
        assert tally.lost == []
        assert set(tally.statuses) == {200}


@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_to_all_processes_loses_nothing(tmp_path: Path, kind: signal.Signals) -> None:
    """As service managers and Ctrl-C do it: each worker hears it, and is told by the supervisor as well."""
    with running(tmp_path, workers=2) as service:
        tally = loaded(service, lambda: os.killpg(service.process.pid, kind), fresh=True)
        assert service.wait() == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}


@pytest.mark.parametrize("fresh", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_worker_that_is_told_to_end_loses_nothing(tmp_path: Path, fresh: bool) -> None:
    """The others go on accepting, another one takes its place, and no client notices."""
    with running(tmp_path, workers=2) as service:
        before = service.pids(2)
        tally = loaded(service, lambda: os.kill(min(before), signal.SIGTERM), fresh=fresh)
        assert tally.lost == []
        assert tally.refused == 0
        until(lambda: service.pids(2) - before)
        assert service.process.poll() is None


def test_a_worker_that_is_killed_loses_only_its_own(tmp_path: Path) -> None:
    """It is replaced, the other goes on, and what it had counted is still known."""
    place(tmp_path, "m", 1)
    with running(tmp_path, workers=2) as service:
        before = service.pids(2)
        tally = loaded(service, lambda: os.kill(min(before), signal.SIGKILL), fresh=False, seconds=1.5)
        assert 0 < len(tally.lost) <= 16
        until(lambda: service.pids(2) - before)
        counts = [snapshot["meter"] for snapshot in service.get("/ask?snapshots")["answer"]]
        assert [count["workers"] for count in counts] == [1, 1, 0]
        answered = sum(
            count["answered"]["/slow"]["POST"]["200"] for count in counts if count["answered"].get("/slow")
        )
        # what it counted in its last second at most is lost
        assert len(tally.good) / 2 < answered <= len(tally.good) + len(tally.lost)
        for plans in plans_of(service):
            assert [one["version"] for one in plans[-1]["models"]["m"]] == [1]


def test_a_worker_that_does_not_answer_is_counted_as_it_last_said(tmp_path: Path) -> None:
    """Counts never go back, and nobody waits for one that hangs."""
    with running(tmp_path, workers=2) as service:
        pids = service.pids(2)
        time.sleep(1.5)
        os.kill(min(pids), signal.SIGSTOP)
        try:
            counts = [
                snapshot["meter"] for snapshot in asking(service, max(pids), "/ask?snapshots")["answer"]
            ]
        finally:
            os.kill(min(pids), signal.SIGCONT)
        assert [count["workers"] for count in counts] == [1, 1]
        assert all(count["answered"]["/"]["GET"]["200"] > 0 for count in counts)


def asking(service: Running, pid: int, path: str) -> Any:
    """The answer of one worker, on whatever connection reaches it."""
    while True:
        try:
            said = service.get(path, seconds=4)
        except TimeoutError:
            continue
        if said["pid"] == pid:
            return said


def plans_of(service: Running) -> list[Any]:
    """What both workers were told to serve."""
    found: dict[int, Any] = {}

    def asked() -> bool:
        said = service.get("/plan")
        found[said["pid"]] = said["plans"]
        return len(found) == 2

    until(asked)
    return list(found.values())


def test_workers_finish_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Nothing is lost, nobody is left behind, and the port closes."""
    with running(tmp_path, workers=2) as service:
        pids = service.pids(2)
        tally = loaded(service, lambda: service.signal(signal.SIGKILL), fresh=True)
        service.wait()
        until(lambda: not any(alive(pid) for pid in pids))
        assert status_of(service, "/") == 0
    assert tally.lost == []
    assert set(tally.statuses) == {200}


def alive(pid: int) -> bool:
    """Whether a process is there, and is more than an entry that nobody has read."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_takes_too_long_is_cut(tmp_path: Path) -> None:
    """Status 1, and the log says how many."""
    with running(tmp_path, drain_seconds=0.2) as service, asked(service, "/slow?30"):
        service.signal(signal.SIGTERM)
        assert service.wait(5) == 1
        assert "1 requests were cut, after 0.2 seconds" in unsaid(service)


@pytest.mark.slow
def test_a_worker_that_hangs_is_cut(tmp_path: Path) -> None:
    """One that does not even hear that it should end is ended by the supervisor."""
    with running(tmp_path, drain_seconds=0.2) as service, asked(service, "/block?60"):
        service.signal(signal.SIGTERM)
        assert service.wait(12) == 1


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Whoever is in a hurry says so twice; status 1 when something was under way."""
    with running(tmp_path, workers=2) as service, asked(service, "/slow?30"):
        service.signal(signal.SIGINT)
        time.sleep(0.3)
        assert service.process.poll() is None
        service.signal(signal.SIGINT)
        assert service.wait(3) == 1


class asked:  # noqa: N801, it reads as what it is
    """A request that is under way for the length of a block."""

    def __init__(self, service: Running, path: str) -> None:
        parts = urlsplit(service.url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        time.sleep(0.2)

    def __enter__(self) -> socket.socket:
        return self.socket

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("device", 2, "error: no such device here"),
        ("crash", 1, "error: a worker ended with status -9 before it could serve"),
        ("bug", 1, "error: a worker ended with status 1 before it could serve"),
    ],
)
def test_a_start_that_fails_is_said(tmp_path: Path, fault: str, status: int, says: str) -> None:
    """The reason in a line where a worker can say it, and what ended it where it cannot."""
    with running(tmp_path, ready=False, workers=2, env={"SMALL_FAULT": fault}) as service:
        assert service.wait() == status
        assert says in service.messages
        assert service.url == ""


def test_workers_that_die_again_and_again_are_replaced_ever_slower(tmp_path: Path) -> None:
    """A pause that doubles keeps a machine usable; the supervisor itself stays."""
    with running(tmp_path, env={"SMALL_LIFE": "0.02"}) as service:
        until(lambda: len(unsaid(service)) >= 3)
        assert [line.split("; ")[1] for line in unsaid(service)[:3]] == [
            f"another one starts in {pause} s" for pause in (0.1, 0.2, 0.4)
        ]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two workers over a repository that each test may add to."""
    with running(tmp_path_factory.mktemp("models"), workers=2) as service:
        yield service


def test_a_hang_up_looks_for_models(two: Running) -> None:
    """SIGHUP has every worker serve what is in the repository now."""
    place(two.models, "hung", 3)
    two.signal(signal.SIGHUP)
    until(lambda: any("hung/3" in message for message in two.messages))
    until(lambda: all("hung" in plans[-1]["models"] for plans in plans_of(two)))


def test_the_repository_is_looked_into_now_and_then(tmp_path: Path) -> None:
    """With poll, new files are found without being told."""
    with running(tmp_path, poll=0.05) as service:
        place(tmp_path, "m", 1)
        until(lambda: "serving m/1" in service.messages)


def test_a_look_that_fails_ends_nothing(tmp_path: Path) -> None:
    """Where the repository cannot be read, what is served goes on, and a later look finds it again."""
    place(tmp_path / "models", "m", 1)
    with running(tmp_path / "models", poll=0.05) as service:
        (tmp_path / "models").rename(tmp_path / "away")
        until(lambda: unsaid(service))
        (tmp_path / "away").rename(tmp_path / "models")
        place(tmp_path / "models", "m", 2)
        until(lambda: "serving m/2" in service.messages)
        assert service.process.poll() is None


def test_a_fault_of_ours_in_a_look_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is, the workers know nothing of it."""

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            supervisor = Supervisor(Settings(models=tmp_path), listener, SmallApp)
            monkeypatch.setattr(supervisor._director, "rescan", broken)
            await supervisor._look_again(explicit=False)

    asyncio.run(story())
    assert "the look into the repository failed" in caplog.text


def test_a_worker_that_lacks_a_file_waits_until_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery is tried once for each plan, then the worker alone tries again."""
    monkeypatch.setattr("service.process.supervisor.FIRST_PAUSE_SECONDS", 0)
    lacks = [{"name": "m", "version": 1, "reason": "its file changed while it was loaded"}]
    answers = [lacks, lacks, lacks, lacks, []]
    asked: list[int] = []
    recovered: list[set[str]] = []
    director = SimpleNamespace(deployment_record={"serial": 1})

    async def ask(what: str, plan: dict[str, int]) -> dict[str, Any]:
        assert what == "commit"
        asked.append(plan["serial"])
        return {"failed": answers[len(asked) - 1]}

    async def reload_failed(names: set[str]) -> None:
        recovered.append(names)
        director.deployment_record = {"serial": 2}

    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            supervisor = Supervisor(Settings(models=tmp_path), listener, SmallApp)
            monkeypatch.setattr(supervisor, "_director", director)
            director.reload_failed = reload_failed
            supervisor._begun.set()
            member: Any = SimpleNamespace(channel=SimpleNamespace(ask=ask))
            await asyncio.wait_for(supervisor._introduce(member), 5)

    asyncio.run(story())
    assert asked == [1, 2, 2, 2, 2]
    assert recovered == [{"m"}, {"m"}]


def test_a_worker_that_cannot_be_introduced_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Left alone, it would live on and never accept a connection."""
    done: list[str] = []

    async def broken(_: object) -> None:
        raise ZeroDivisionError

    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            team = Supervisor(Settings(models=tmp_path), listener, SmallApp)._team
            monkeypatch.setattr(team, "_introduce", broken)
            team._up.set()
            up = asyncio.Event()
            up.set()
            member: Any = SimpleNamespace(
                number=3, up=up, kill=lambda: done.append("kill"), accept=lambda: done.append("accept")
            )
            await team._welcome(member)

    asyncio.run(story())
    assert done == ["kill"]
    assert "worker 3 could not be told what to serve" in caplog.text


def test_files_of_no_use_for_tls_stop_the_start(tmp_path: Path) -> None:
    """Before anything is announced, with the status of a setting that makes no sense."""
    (tmp_path / "file").write_text("hello")
    pair = {"tls_cert": str(tmp_path / "file"), "tls_key": str(tmp_path / "file")}
    with running(tmp_path, ready=False, **pair) as service:
        assert service.wait() == 2
        assert service.messages == [
            f"error: --tls-cert: expected a certificate chain (PEM), got '{tmp_path / 'file'}'"
        ]


def test_models_are_unloaded_and_loaded_everywhere(two: Running) -> None:
    """A worker's wish reaches all of them, and the supervisor's answer the one that asked."""
    place(two.models, "m", 1)
    assert two.get("/ask?load=m")["answer"] == {"ok": True}
    assert all("m" in plans[-1]["models"] for plans in plans_of(two))
    assert two.get("/ask?unload=m")["answer"] == {"ok": True}
    unloaded = {"name": "m", "version": 1, "reason": "unloaded"}
    assert all(unloaded in plans[-1]["left_out"] for plans in plans_of(two))
    assert not two.get("/ask?load=absent")["answer"]["ok"]


def test_connections_are_shared_out_evenly(two: Running) -> None:
    """However they come, all at once here, no worker has many more than another."""
    parts = urlsplit(two.url)

    async def pid(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b'"pid": ')
        return int((await reader.readuntil(b","))[:-1])

    async def story() -> list[int]:
        streams = await asyncio.gather(
            *(asyncio.open_connection(parts.hostname, parts.port) for _ in range(60))
        )
        pids = [await pid(*stream) for stream in streams]
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in streams))
        return pids

    pids = asyncio.run(story())
    counts = [pids.count(one) for one in set(pids)]
    assert len(counts) == 2
    assert max(counts) - min(counts) <= 10


def test_the_port_is_closed_while_the_last_answers_come(tmp_path: Path) -> None:
    """A new client is refused at once rather than left to wait, by then."""
    with running(tmp_path, workers=2) as service, asked(service, "/slow?1.5") as client:
        service.signal(signal.SIGTERM)
        time.sleep(0.7)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(client.getpeername(), 0.5)
        client.settimeout(5)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert service.wait() == 0


def test_all_descriptors_that_are_allowed_are_used() -> None:
    """The soft limit of a process is often far below the hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(500, before[1]), before[1]))
    try:
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_was_shown_once_is_not_forgotten(tmp_path: Path) -> None:
    """A worker that is killed right after its counts were shown is still counted in full."""
    with running(tmp_path, workers=1) as service:
        (first,) = service.pids(1)
        time.sleep(1.2)

        def answered() -> int:
            snapshots = service.get("/ask?snapshots")["answer"]
            return sum(
                one["meter"]["answered"].get("/", {}).get("GET", {}).get("200", 0) for one in snapshots
            )

        for _ in range(50):
            service.get("/")
        shown = answered()
        os.kill(first, signal.SIGKILL)
        until(lambda: service.pids(1) != {first})
        assert shown >= 50
        assert answered() >= shown
