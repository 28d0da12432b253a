"""Tests of the request queue: which requests form a batch, and how long they wait."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter_ns
from typing import Any

import numpy as np
import pytest

from turnpike.service.batching.queue import QueuedRequest, RequestQueue
from turnpike.service.errors import DeadlineError
from turnpike.service.inference_types import RunPlan

MakeRequest = Callable[..., QueuedRequest]

SMALL: Any = (((2,), np.dtype("float32")),)
LARGE: Any = (((3,), np.dtype("float32")),)
DOUBLE: Any = (((2,), np.dtype("float64")),)


@pytest.fixture
def make_request() -> Iterator[MakeRequest]:
    loop = asyncio.new_event_loop()

    def build(
        rows: int = 1, shapes: Any = SMALL, deadline: float = math.inf, since: int = 0
    ) -> QueuedRequest:
        return QueuedRequest({}, RunPlan(rows, 1, shapes, (), ()), deadline, since, loop.create_future())

    yield build
    loop.close()


def test_whole_requests_are_taken_in_order(make_request: MakeRequest) -> None:
    """As many requests are taken as fit completely."""
    requests = [make_request(3), make_request(4), make_request(2), make_request(1)]
    queue = RequestQueue(requests)
    assert queue.take_batch(8) == requests[:2]
    assert queue.take_batch(8) == requests[2:]
    assert queue.take_batch(8) == []


def test_a_small_request_does_not_overtake_a_large_request(make_request: MakeRequest) -> None:
    requests = [make_request(3), make_request(7), make_request(1)]
    queue = RequestQueue(requests)
    assert [queue.take_batch(8), queue.take_batch(8)] == [requests[:1], requests[1:]]


def test_a_request_larger_than_a_run_is_taken_alone(make_request: MakeRequest) -> None:
    """BatchRunner splits it later."""
    requests = [make_request(20), make_request(1)]
    queue = RequestQueue(requests)
    assert queue.take_batch(8) == requests[:1]
    assert queue.take_batch(8) == requests[1:]


def test_requests_of_equal_shapes_are_taken_together(make_request: MakeRequest) -> None:
    """Requests of another shape or dtype are passed over and keep their places."""
    requests = [make_request(shapes=shapes) for shapes in (SMALL, LARGE, SMALL, DOUBLE, LARGE, SMALL)]
    queue = RequestQueue(requests)
    assert queue.take_batch(8) == [requests[0], requests[2], requests[5]]
    assert list(queue) == [requests[1], requests[3], requests[4]]
    assert queue.take_batch(8) == [requests[1], requests[4]]
    assert queue.take_batch(8) == [requests[3]]


def test_requests_without_shared_shapes_are_taken_alone(make_request: MakeRequest) -> None:
    requests = [make_request(shapes=shapes) for shapes in (None, None, SMALL, None, SMALL)]
    queue = RequestQueue(requests)
    assert queue.take_batch(8) == [requests[0]]
    assert queue.take_batch(8) == [requests[1]]
    assert queue.take_batch(8) == [requests[2], requests[4]]
    assert queue.take_batch(8) == [requests[3]]


def test_the_scan_for_equal_shapes_is_limited(make_request: MakeRequest) -> None:
    """A queue of different shapes is not scanned completely for every run. The order stays."""
    requests = [make_request(), *(make_request(shapes=LARGE) for _ in range(5)), make_request()]
    queue = RequestQueue(requests)
    assert queue.take_batch(8, max_scan=3) == requests[:1]
    assert list(queue) == requests[1:]


def test_cancelled_requests_are_dropped(make_request: MakeRequest) -> None:
    requests = [make_request(4) for _ in range(4)]
    queue = RequestQueue(requests)
    requests[0].future.cancel()
    requests[2].future.cancel()
    assert queue.take_batch(8) == [requests[1], requests[3]]


def test_overdue_requests_get_a_deadline_error(make_request: MakeRequest) -> None:
    """Requests that were cancelled before get none."""
    late, gone, good = (
        make_request(deadline=monotonic() - 1),
        make_request(deadline=monotonic() - 1),
        make_request(),
    )
    gone.future.cancel()
    queue = RequestQueue([late, gone, good])
    assert queue.take_batch(8) == [good]
    assert not late.future.done()
    queue.expire_overdue()
    assert late.future.done()
    assert queue.overdue == []
    with pytest.raises(DeadlineError, match="timeout: expected a run before the deadline"):
        late.result()


def test_only_overdue_requests_expire(make_request: MakeRequest) -> None:
    soon = monotonic() + 60
    requests = [
        make_request(deadline=soon + 1),
        make_request(deadline=monotonic()),
        make_request(deadline=soon),
        make_request(),
    ]
    gone = make_request(deadline=monotonic())
    gone.future.cancel()
    queue = RequestQueue([gone, *requests])
    queue.take_overdue()
    queue.expire_overdue()
    assert list(queue) == [requests[0], requests[2], requests[3]]
    assert isinstance(requests[1].outcome, DeadlineError)
    assert queue.earliest_deadline() == soon
    assert RequestQueue().earliest_deadline() == math.inf


def test_a_full_batch_is_counted_in_rows(make_request: MakeRequest) -> None:
    assert not RequestQueue([make_request(3), make_request(4)]).is_full_batch(8)
    assert RequestQueue([make_request(3), make_request(5)]).is_full_batch(8)
    assert RequestQueue([make_request() for _ in range(8)]).is_full_batch(8)


def test_time_to_wait_counts_from_the_first_arrival(make_request: MakeRequest) -> None:
    now = perf_counter_ns()
    assert (
        1
        < RequestQueue([make_request(since=now - 500_000_000), make_request(since=now)]).time_to_wait(2, 8)
        <= 1.5
    )
    assert (
        RequestQueue([make_request(since=now - 3_000_000_000), make_request(since=now)]).time_to_wait(2, 8)
        <= 0
    )


def test_time_to_wait_is_zero_if_waiting_is_useless(make_request: MakeRequest) -> None:
    """Without a delay or requests, with a full batch, an unbatched request or an early deadline."""
    now = perf_counter_ns()
    assert RequestQueue([make_request(since=now)]).time_to_wait(0, 8) == 0
    assert RequestQueue().time_to_wait(2, 8) == 0
    assert RequestQueue([make_request(8, since=now)]).time_to_wait(2, 8) == 0
    assert RequestQueue([make_request(shapes=None, since=now)]).time_to_wait(2, 8) == 0
    assert (
        RequestQueue(
            [make_request(since=now), make_request(since=now, deadline=monotonic() + 1)]
        ).time_to_wait(2, 8)
        == 0
    )
    assert (
        RequestQueue(
            [make_request(since=now), make_request(since=now, deadline=monotonic() + 5)]
        ).time_to_wait(2, 8)
        > 0
    )
