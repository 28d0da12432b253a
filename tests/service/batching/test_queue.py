"""Those who wait: who is taken, who is passed over, who has waited too long."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter_ns
from typing import Any

import numpy as np
import pytest

from service.batching import queue as queue_module
from service.batching.queue import QueuedRequest, RequestQueue
from service.errors import DeadlineError

MakeJob = Callable[..., QueuedRequest]

SMALL: Any = (((2,), np.dtype("float32")),)
LARGE: Any = (((3,), np.dtype("float32")),)
DOUBLE: Any = (((2,), np.dtype("float64")),)


@pytest.fixture
def job() -> Iterator[MakeJob]:
    loop = asyncio.new_event_loop()

    def make(rows: int = 1, shapes: Any = SMALL, deadline: float = math.inf, since: int = 0) -> QueuedRequest:
        return QueuedRequest({}, rows, (), shapes, deadline, since, loop.create_future(), 1)

    yield make
    loop.close()


def test_whole_requests_are_taken_in_order(job: MakeJob) -> None:
    """As many as fit, none of them in part."""
    jobs = [job(3), job(4), job(2), job(1)]
    queue = RequestQueue(jobs)
    assert queue.take_batch(8) == jobs[:2]
    assert queue.take_batch(8) == jobs[2:]
    assert queue.take_batch(8) == []


def test_a_small_one_does_not_overtake_a_large_one(job: MakeJob) -> None:
    """What does not fit ends the run, though one behind it would."""
    jobs = [job(3), job(7), job(1)]
    queue = RequestQueue(jobs)
    assert [queue.take_batch(8), queue.take_batch(8)] == [jobs[:1], jobs[1:]]


def test_a_request_larger_than_a_run_is_taken_by_itself(job: MakeJob) -> None:
    """It is cut later on."""
    jobs = [job(20), job(1)]
    queue = RequestQueue(jobs)
    assert queue.take_batch(8) == jobs[:1]
    assert queue.take_batch(8) == jobs[1:]


def test_only_those_alike_are_taken_together(job: MakeJob) -> None:
    """Another shape or dtype is passed over and keeps its place."""
    jobs = [job(shapes=shapes) for shapes in (SMALL, LARGE, SMALL, DOUBLE, LARGE, SMALL)]
    queue = RequestQueue(jobs)
    assert queue.take_batch(8) == [jobs[0], jobs[2], jobs[5]]
    assert list(queue) == [jobs[1], jobs[3], jobs[4]]
    assert queue.take_batch(8) == [jobs[1], jobs[4]]
    assert queue.take_batch(8) == [jobs[3]]


def test_those_that_run_by_themselves_do(job: MakeJob) -> None:
    """They neither take others along nor go along with them."""
    jobs = [job(shapes=shapes) for shapes in (None, None, SMALL, None, SMALL)]
    queue = RequestQueue(jobs)
    assert queue.take_batch(8) == [jobs[0]]
    assert queue.take_batch(8) == [jobs[1]]
    assert queue.take_batch(8) == [jobs[2], jobs[4]]
    assert queue.take_batch(8) == [jobs[3]]


def test_no_more_than_so_many_are_passed_over(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of nothing but different rows is not looked through for every run; order is kept."""
    monkeypatch.setattr(queue_module, "MAX_BATCH_SCAN", 3)
    jobs = [job(), *(job(shapes=LARGE) for _ in range(5)), job()]
    queue = RequestQueue(jobs)
    assert queue.take_batch(8) == jobs[:1]
    assert list(queue) == jobs[1:]


def test_those_who_left_are_dropped(job: MakeJob) -> None:
    """A caller who has gone takes no room in a run."""
    jobs = [job(4) for _ in range(4)]
    queue = RequestQueue(jobs)
    jobs[0].future.cancel()
    jobs[2].future.cancel()
    assert queue.take_batch(8) == [jobs[1], jobs[3]]


def test_those_whose_deadline_passed_are_refused(job: MakeJob) -> None:
    """They are not taken, and are told so; who left before is left in peace."""
    late, gone, good = job(deadline=monotonic() - 1), job(deadline=monotonic() - 1), job()
    gone.future.cancel()
    assert RequestQueue([late, gone, good]).take_batch(8) == [good]
    assert late.future.done()
    with pytest.raises(DeadlineError, match="timeout: expected a run before the deadline"):
        late.result()


def test_expiry_takes_only_those_who_are_late(job: MakeJob) -> None:
    """The others keep their order, and the first deadline among them is known."""
    soon = monotonic() + 60
    jobs = [job(deadline=soon + 1), job(deadline=monotonic()), job(deadline=soon), job()]
    gone = job(deadline=monotonic())
    gone.future.cancel()
    queue = RequestQueue([gone, *jobs])
    queue.expire_overdue()
    assert list(queue) == [jobs[0], jobs[2], jobs[3]]
    assert isinstance(jobs[1].outcome, DeadlineError)
    assert queue.earliest_deadline() == soon
    assert RequestQueue().earliest_deadline() == math.inf


def test_a_full_run_is_counted_in_rows(job: MakeJob) -> None:
    """Eight requests, or few of many rows."""
    assert not RequestQueue([job(3), job(4)]).is_full_batch(8)
    assert RequestQueue([job(3), job(5)]).is_full_batch(8)
    assert RequestQueue([job() for _ in range(8)]).is_full_batch(8)


def test_patience_counts_from_the_first_arrival(job: MakeJob) -> None:
    """What is left of the delay, and nothing once it is over."""
    now = perf_counter_ns()
    assert 1 < RequestQueue([job(since=now - 500_000_000), job(since=now)]).time_to_wait(2, 8) <= 1.5
    assert RequestQueue([job(since=now - 3_000_000_000), job(since=now)]).time_to_wait(2, 8) <= 0


def test_patience_ends_where_waiting_is_no_use(job: MakeJob) -> None:
    """No delay, nobody there, a full run, one that runs by itself, or a deadline within the delay."""
    now = perf_counter_ns()
    assert RequestQueue([job(since=now)]).time_to_wait(0, 8) == 0
    assert RequestQueue().time_to_wait(2, 8) == 0
    assert RequestQueue([job(8, since=now)]).time_to_wait(2, 8) == 0
    assert RequestQueue([job(shapes=None, since=now)]).time_to_wait(2, 8) == 0
    assert RequestQueue([job(since=now), job(since=now, deadline=monotonic() + 1)]).time_to_wait(2, 8) == 0
    assert RequestQueue([job(since=now), job(since=now, deadline=monotonic() + 5)]).time_to_wait(2, 8) > 0
