"""One process's share of a load: closed loop and open loop, timed, judged and noted."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import gevent
import pytest

from loadtest.generate import schedule as scheduling
from loadtest.generate.alarm import Alarm
from loadtest.generate.process_load import Station
from loadtest.generate.sender import now
from loadtest.ledger import Outcome, Summary
from loadtest.plan import Plan
from loadtest.workload.workload import Load
from tests.support import fake_servers as peers
from tests.support.fake_servers import Answerer, Asked, Given


@contextlib.contextmanager
def stationed(infer: Answerer = peers.scaled, **options: object) -> Iterator[tuple[Station, list[Outcome]]]:
    """A station before a server as Triton, and the outcomes that it notes."""
    outcomes: list[Outcome] = []
    with peers.serving(peers.triton(infer)) as peer:
        plan = replace(Plan(peer.url, samples=2), **options)
        load = Load(plan)
        load.of("json")
        station = Station(plan, load, "worker 0", lambda outcome, size: outcomes.append(outcome))
        try:
            yield station, outcomes
        finally:
            station.end()
            gevent.sleep(0)
            station.sender.connections.keep(0)


class Gate:
    """A server that lets the first few requests through, and then waits until it is opened."""

    def __init__(self, free: int = 2) -> None:
        self.open = threading.Event()
        self.free = free

    def __call__(self, asked: Asked) -> Given:
        self.free -= 1
        if self.free < 0:
            assert self.open.wait(20)
        return peers.scaled(asked)


def summary(station: Station) -> Summary:
    return station.ledger.whole()


def test_closed_loop() -> None:
    """A request counts from when it leaves until its whole answer is there."""
    with stationed() as (station, outcomes):
        shots = station.order("json")
        begun = now()
        for _ in range(5):
            station.sender.send(next(shots))
        ended = now()
    assert [outcome.fault for outcome in outcomes] == [None] * 5
    assert all(outcome.late == 0 and outcome.rows == 1 for outcome in outcomes)
    assert 0 < sum(outcome.latency for outcome in outcomes) <= ended - begun
    assert abs(begun - time.time()) < 60
    assert summary(station).good == 5


def test_faults_have_names() -> None:
    """Refused, wrong and never answered: each is noted with its time, and none as good."""
    answers = iter([Given({"error": "busy"}, 503), Given(b"{}"), None])
    free = [2]
    waiting = threading.Event()

    def infer(asked: Asked) -> Given:
        free[0] -= 1
        if free[0] >= 0:
            return peers.scaled(asked)
        if given := next(answers):
            return given
        waiting.wait(20)
        return Given({})

    with stationed(infer, timeout=0.2) as (station, outcomes):
        shots = station.order("json")
        for _ in range(3):
            station.sender.send(next(shots))
        waiting.set()
    first, second, third = (str(outcome.fault) for outcome in outcomes)
    assert first == "503"
    assert second.startswith("wrong: ")
    assert third == "no answer in 0.2 s"
    assert outcomes[2].latency >= 0.2
    assert station.sender.in_flight == 0


def test_requests_are_the_same_in_every_run_and_others_for_every_user() -> None:
    """What is drawn follows from the seed, the process and the user."""

    def kinds(name: str, seed: int) -> list[list[bytes]]:
        with stationed(seed=seed) as (station, _):
            made = Station(station.plan, station.load, name)
            orders = [made.order("json") for _ in range(2)]
            return [[next(order).request.partition(b"\r\n\r\n")[2] for _ in range(30)] for order in orders]

    first = kinds("worker 0", 0)
    assert first == kinds("worker 0", 0)
    assert first[0] != first[1]
    assert kinds("worker 1", 0) != first
    assert kinds("worker 0", 1) != first


def test_open_loop_does_not_wait() -> None:
    """While the server stands still requests leave on schedule, and their latencies count the stall."""
    gate = Gate()
    with stationed(gate, users=5) as (station, outcomes):
        running = gevent.spawn(station.schedule(station.order("json")).run)
        station.rate = 200
        gevent.sleep(0.5)
        assert station.sender.in_flight > 30
        assert not outcomes
        gate.open.set()
        station.settle()
        # what the stall opened would burden the server at the next rate
        assert len(station.sender.connections._idle) == 5
        station.end()
        running.join(10)
        assert running.ready()
    assert station.sender.in_flight == 0
    assert all(outcome.fault is None for outcome in outcomes)
    latencies = sorted(outcome.latency for outcome in outcomes)
    # those that were due first waited longest, and they are spread over the stall
    assert latencies[-1] > 0.3
    assert latencies[len(latencies) // 2] > 0.1
    assert summary(station).good == len(outcomes)


@pytest.mark.slow
def test_what_leaves_late_is_late() -> None:
    """Where this process itself stood still, latencies count from when requests were due."""
    with stationed() as (station, outcomes):
        gevent.spawn(station.schedule(station.order("json")).run)
        station.rate = 100
        gevent.sleep(0.1)
        time.sleep(0.3)  # nothing else runs meanwhile
        gevent.sleep(0.1)
        station.settle()
    held = [outcome for outcome in outcomes if outcome.late > 0.1]
    assert len(held) > 5
    assert all(outcome.latency > outcome.late for outcome in outcomes)


def test_more_than_this_process_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate beyond all reach leaves time for answers, and for whoever ends it."""
    monkeypatch.setattr(scheduling, "MOST", 10)
    with stationed() as (station, _):
        gevent.spawn(station.schedule(station.order("json")).run)
        begun = time.monotonic()
        station.rate = 1e6
        gevent.sleep(0.3)
        station.settle()
    # else it is the test's own time limit that ends the schedule
    assert time.monotonic() - begun < 15
    assert summary(station).good > 0
    assert summary(station).bad > 0


def test_arrivals_are_random_and_at_the_rate() -> None:
    """Gaps between requests are those of a Poisson process: as large as they vary."""
    with stationed(samples=1) as (station, outcomes):
        gevent.spawn(station.schedule(station.order("json")).run)
        station.rate = 400
        gevent.sleep(1)
        station.settle()
    gaps = [later - earlier for earlier, later in pairwise(sorted(outcome.due for outcome in outcomes))]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert 1 / mean == pytest.approx(400, rel=0.25)
    assert spread == pytest.approx(mean, rel=0.3)
    assert all(outcome.late >= 0 for outcome in outcomes)


def test_a_rate_of_nothing_and_a_new_one() -> None:
    """A schedule pauses at 0, goes on at once with a new rate, and owes nothing of the pause."""
    with stationed() as (station, outcomes):
        gevent.spawn(station.schedule(station.order("json")).run)
        gevent.sleep(0.1)
        assert not outcomes
        station.rate = 100
        gevent.sleep(0.3)
        station.settle()
        before = len(outcomes)
        gevent.sleep(0.3)
        assert len(outcomes) == before > 5
        station.rate = 100
        gevent.sleep(0.3)
        station.settle()
        assert before < len(outcomes) < before + 75


def test_too_many_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound requests do not leave, which is a fault of their own and no good answer."""
    monkeypatch.setattr(scheduling, "MOST", 10)
    gate = Gate()
    with stationed(gate) as (station, outcomes):
        gevent.spawn(station.schedule(station.order("json")).run)
        station.rate = 300
        gevent.sleep(0.3)
        assert station.sender.in_flight == 10
        assert {outcome.fault for outcome in outcomes} == {scheduling.NOT_SENT}
        gate.open.set()
        station.settle()
    assert summary(station).good >= 10
    assert summary(station).bad > 20


def test_settling_waits_for_what_is_in_flight() -> None:
    """Nothing leaves any more, and the last answer is noted before it is over."""
    gate = Gate()
    with stationed(gate) as (station, outcomes):
        shots = station.order("json")
        sending = [gevent.spawn(station.sender.send, next(shots)) for _ in range(3)]
        gevent.sleep(0.1)
        assert station.sender.in_flight == 3
        settling = gevent.spawn(station.settle)
        gevent.sleep(0.1)
        assert not settling.ready()
        assert not station.sender.gate.is_set()
        gate.open.set()
        settling.join(10)
        assert settling.ready()
        assert len(outcomes) == 3
        gevent.joinall(sending, 10)


def test_an_alarm_is_never_early() -> None:
    """It sleeps as long as it is told, nothing at all included, and others run meanwhile."""
    ran = []
    other = gevent.spawn_later(0.01, ran.append, True)
    alarm = Alarm()
    for seconds in (0.0, 1e-6, 0.002, 0.05):
        begun = time.monotonic()
        alarm.sleep(seconds)
        assert time.monotonic() - begun >= seconds * 0.999
    alarm.close()
    other.join(1)
    assert ran == [True]


def test_the_same_without_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On other systems it is gevent's own sleep."""
    monkeypatch.setattr("sys.platform", "darwin")
    alarm = Alarm()
    begun = time.monotonic()
    alarm.sleep(0.01)
    assert time.monotonic() - begun >= 0.009
    alarm.close()
