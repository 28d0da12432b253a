"""The load of one process: closed loop and open loop, timed, checked and recorded."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.support import fake_servers
from tests.support.fake_servers import FakeAnswer, ReceivedRequest, Responder
from turnpike.loadtest.generate import process_load, sender
from turnpike.loadtest.generate.open_loop import MAX_IN_FLIGHT
from turnpike.loadtest.generate.process_load import ProcessLoad
from turnpike.loadtest.ledger import Outcome, PeriodSummary, now
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.workload import Workload


@contextlib.contextmanager
def running_process_load(
    infer: Responder = fake_servers.scale_rows, max_in_flight: int = MAX_IN_FLIGHT, **options: object
) -> Iterator[tuple[ProcessLoad, list[Outcome]]]:
    """The load of a process on a server like Triton, and its outcomes."""
    outcomes: list[Outcome] = []
    with fake_servers.fake_server(fake_servers.triton(infer)) as server:
        plan = replace(LoadPlan(server.url, samples=2), **options)
        workload = Workload(plan)
        workload.payloads("json")
        process_load = ProcessLoad(
            plan, workload, "worker 0", lambda outcome, size: outcomes.append(outcome), max_in_flight
        )
        try:
            yield process_load, outcomes
        finally:
            process_load.close()


@contextlib.contextmanager
def running_schedule(
    infer: Responder = fake_servers.scale_rows, sources: int = 1, **options: Any
) -> Iterator[tuple[ProcessLoad, list[Outcome]]]:
    """The same with users of an open loop, whose rate is still 0."""
    with running_process_load(infer, rate=1.0, **options) as (process_load, outcomes):
        for _ in range(sources):
            process_load.new_user("json").start()
        yield process_load, outcomes


def send(process_load: ProcessLoad, count: int) -> None:
    """Send requests one after the other."""
    requests = process_load.request_cycle("json")
    for _ in range(count):
        process_load.sender.launch(next(requests))
        process_load.sender.wait_for_answers()


class Barrier:
    """Answers the first few requests, and the others once it is opened."""

    def __init__(self, free: int = 2) -> None:
        self.open = threading.Event()
        self.free = free

    def __call__(self, request: ReceivedRequest) -> FakeAnswer:
        self.free -= 1
        if self.free < 0:
            assert self.open.wait(20)
        return fake_servers.scale_rows(request)


def summary(process_load: ProcessLoad) -> PeriodSummary:
    return process_load.ledger.summary(*process_load.ledger.span())


def test_a_closed_loop_waits_for_each_response() -> None:
    with running_process_load() as (process_load, outcomes):
        process_load.new_user("json").start()
        while len(outcomes) < 5:
            assert process_load.sender.in_flight == 1
            gevent.sleep(0.01)
        process_load.drain()
        ended = now()
        count = len(outcomes)
        gevent.sleep(0.1)
        assert len(outcomes) == count
    assert [outcome.fault for outcome in outcomes] == [None] * count
    assert all(outcome.late == 0 and outcome.rows == 1 for outcome in outcomes)
    for earlier, later in pairwise(outcomes):
        assert later.due >= earlier.due + earlier.latency
    assert outcomes[-1].due + outcomes[-1].latency <= ended
    assert abs(ended - time.time()) < 60
    assert summary(process_load).good == count


def test_a_user_that_stops_sends_nothing_more() -> None:
    barrier = Barrier()
    with running_process_load(barrier) as (process_load, outcomes):
        user = process_load.new_user("json")
        user.start()
        gevent.sleep(0.05)
        user.stop()
        barrier.open.set()
        process_load.sender.wait_for_answers()
        gevent.sleep(0.05)
        assert [outcome.fault for outcome in outcomes] == [None]


def test_faults_have_names() -> None:
    answers = iter([FakeAnswer({"error": "busy"}, 503), FakeAnswer(b"{}"), None])
    free = [2]
    waiting = threading.Event()

    def infer(request: ReceivedRequest) -> FakeAnswer:
        free[0] -= 1
        if free[0] >= 0:
            return fake_servers.scale_rows(request)
        if answer := next(answers):
            return answer
        waiting.wait(20)
        return FakeAnswer({})

    with running_process_load(infer, timeout=0.2) as (process_load, outcomes):
        send(process_load, 3)
        waiting.set()
    first, second, third = (str(outcome.fault) for outcome in outcomes)
    assert first == "503"
    assert second.startswith("wrong: ")
    assert third == "no answer in 0.2 s"
    assert outcomes[2].latency >= 0.2
    assert process_load.sender.in_flight == 0


def test_requests_repeat_in_every_run_and_differ_between_users() -> None:
    def bodies(name: str, seed: int) -> list[list[bytes]]:
        with running_process_load(seed=seed) as (process_load, _):
            other = ProcessLoad(process_load.plan, process_load.workload, name)
            cycles = [other.request_cycle("json") for _ in range(2)]
            other.close()
            return [[next(cycle).data.partition(b"\r\n\r\n")[2] for _ in range(30)] for cycle in cycles]

    first = bodies("worker 0", 0)
    assert first == bodies("worker 0", 0)
    assert first[0] != first[1]
    assert bodies("worker 1", 0) != first
    assert bodies("worker 0", 1) != first


def test_equal_answers_are_checked_once() -> None:
    """After that their bytes are compared. An answer that differs is always checked."""
    checked = 0
    with running_process_load(samples=1) as (process_load, outcomes):
        check = process_load.workload.checker.check

        def count(*arguments: Any) -> str | None:
            nonlocal checked
            checked += 1
            return check(*arguments)

        process_load.workload.checker.check = count  # type: ignore[method-assign]
        send(process_load, 20)
    assert [outcome.fault for outcome in outcomes] == [None] * 20
    assert checked == 1


def test_open_loop_does_not_wait() -> None:
    """While the server stalls, requests are sent on schedule, and their latencies include the stall."""
    barrier = Barrier()
    with running_schedule(barrier) as (process_load, outcomes):
        process_load.rate = 200
        gevent.sleep(0.5)
        assert process_load.sender.in_flight > 30
        assert not outcomes
        barrier.open.set()
        process_load.drain()
    assert process_load.sender.in_flight == 0
    assert all(outcome.fault is None for outcome in outcomes)
    latencies = sorted(outcome.latency for outcome in outcomes)
    # requests that were due first waited longest, and due times are spread over the stall
    assert latencies[-1] > 0.3
    assert latencies[len(latencies) // 2] > 0.1
    assert summary(process_load).good == len(outcomes)


def test_connections_beyond_the_users_are_closed_after_a_rate() -> None:
    """The fake server has a thread for each connection, so a stalled request keeps its own."""
    barrier = Barrier()
    with running_schedule(barrier, users=3) as (process_load, outcomes):
        process_load.rate = 100
        gevent.sleep(0.3)
        assert len(process_load.sender._exchanges) > 10
        barrier.open.set()
        process_load.drain()
        assert len(process_load.sender._idle) == 3
        assert {outcome.fault for outcome in outcomes} == {None}


def test_requests_share_connections_in_a_short_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection for each request that is due in it would be an overload of another kind."""
    monkeypatch.setattr(sender, "SHARE_SECONDS", 0.5)
    barrier = Barrier()
    with running_schedule(barrier, users=3) as (process_load, outcomes):
        process_load.rate = 300
        gevent.sleep(0.2)
        # these are sent, and the others wait
        assert len(process_load.sender._exchanges) == 3
        assert process_load.sender.in_flight > 20
        barrier.open.set()
        process_load.drain()
        assert len(process_load.sender._idle) == 3
    assert {outcome.fault for outcome in outcomes} == {None}
    # a request that waits is not sent late: the server was too slow to free a connection
    assert max(outcome.latency for outcome in outcomes) > 0.1 > max(outcome.late for outcome in outcomes)


def test_requests_that_wait_for_a_connection_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SHARE_SECONDS", 60)
    barrier = Barrier()
    with running_schedule(barrier, users=1, timeout=0.2) as (process_load, outcomes):
        process_load.rate = 100
        gevent.sleep(0.2)
        process_load.drain()
        barrier.open.set()
    assert len(outcomes) > 5
    assert {outcome.fault for outcome in outcomes} == {"no answer in 0.2 s"}


def test_latency_includes_lateness() -> None:
    """If this process itself stalls, latencies still count from the time requests were due."""
    with running_schedule() as (process_load, outcomes):
        process_load.rate = 100
        gevent.sleep(0.1)
        time.sleep(0.3)  # blocks the event loop
        gevent.sleep(0.1)
        process_load.drain()
    held = [outcome for outcome in outcomes if outcome.late > 0.1]
    assert len(held) > 5
    assert all(outcome.latency > outcome.late for outcome in outcomes)


@pytest.mark.slow
def test_an_unreachable_rate_leaves_time_to_stop() -> None:
    with running_schedule(max_in_flight=10) as (process_load, _):
        begun = time.monotonic()
        process_load.rate = 1e6
        gevent.sleep(0.3)
        process_load.drain()
    # otherwise only the test's own time limit would end the schedule
    assert time.monotonic() - begun < 15
    assert summary(process_load).good > 0
    assert summary(process_load).bad > 0


@pytest.mark.parametrize("sources", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_arrivals_are_a_poisson_process(sources: int) -> None:
    """Gaps of a Poisson process have a standard deviation equal to their mean; the rates of users add up."""
    with running_schedule(sources=sources, samples=1) as (process_load, outcomes):
        process_load.rate = 400 / sources
        gevent.sleep(1)
        process_load.drain()
    gaps = [later - earlier for earlier, later in pairwise(sorted(outcome.due for outcome in outcomes))]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert 1 / mean == pytest.approx(400, rel=0.25)
    assert spread == pytest.approx(mean, rel=0.3)
    assert all(outcome.late >= 0 for outcome in outcomes)


def test_requests_of_all_users_are_sent() -> None:
    with running_process_load(rate=1.0, rows=(1, 3)) as (process_load, outcomes):
        first, second = process_load.new_user("json"), process_load.new_user("binary")
        first.start()
        second.start()
        process_load.rate = 100
        gevent.sleep(0.5)
        second.stop()
        process_load.sender.wait_for_answers()
        assert {outcome.kind.split(",")[0] for outcome in outcomes} == {"json", "binary"}
        outcomes.clear()
        gevent.sleep(0.3)
        process_load.drain()
        assert {outcome.kind.split(",")[0] for outcome in outcomes} == {"json"}


def test_a_schedule_does_not_catch_up_after_a_pause() -> None:
    """At rate 0 nothing is sent."""
    with running_schedule() as (process_load, outcomes):
        gevent.sleep(0.1)
        assert not outcomes
        process_load.rate = 100
        gevent.sleep(0.3)
        process_load.drain()
        before = len(outcomes)
        gevent.sleep(0.3)
        assert len(outcomes) == before > 5
        process_load.rate = 100
        gevent.sleep(0.3)
        process_load.drain()
        assert before < len(outcomes) < before + 75


def test_too_many_requests_in_flight_are_faults() -> None:
    barrier = Barrier()
    with running_schedule(barrier, max_in_flight=10) as (process_load, outcomes):
        process_load.rate = 300
        gevent.sleep(0.3)
        assert process_load.sender.in_flight == 10
        assert {outcome.fault for outcome in outcomes} == {"not sent: 10 in flight"}
        barrier.open.set()
        process_load.drain()
    assert summary(process_load).good >= 10
    assert summary(process_load).bad > 20


def test_draining_waits_for_requests_in_flight() -> None:
    barrier = Barrier()
    with running_process_load(barrier) as (process_load, outcomes):
        for _ in range(3):
            process_load.new_user("json").start()
        gevent.sleep(0.1)
        assert process_load.sender.in_flight == 3
        draining = gevent.spawn(process_load.drain)
        gevent.sleep(0.1)
        assert not draining.ready()
        barrier.open.set()
        draining.join(10)
        assert draining.ready()
        assert len(outcomes) == 3


def test_requests_are_sent_on_time_without_timerfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with running_schedule() as (process_load, outcomes):
        for _ in range(2):
            process_load.rate = 100
            gevent.sleep(0.3)
            process_load.drain()
    assert len(outcomes) > 20


@pytest.mark.parametrize(
    ("statistics", "seconds"), [("7000 2500000000 12\n", 2.5), ("", 0.0), ("0 none 0", 0.0), (None, 0.0)]
)
def test_the_time_without_a_cpu_is_read_if_the_system_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statistics: str | None, seconds: float
) -> None:
    file = tmp_path / "schedstat"
    if statistics is not None:
        file.write_text(statistics)
    monkeypatch.setattr(process_load, "SCHEDULER_STATISTICS", file)
    assert process_load.starved_seconds() == seconds
