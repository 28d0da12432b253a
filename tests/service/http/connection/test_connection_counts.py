"""The number of connections of each worker."""

from __future__ import annotations

from turnpike.service.http.connection.connection_counts import NOT_ACCEPTING, ConnectionCounts


def test_each_worker_publishes_its_connection_count() -> None:
    """A worker that accepts no connections is left out of the comparison."""
    counts = ConnectionCounts(3)
    assert counts.least() == NOT_ACCEPTING
    counts.publish(1, 7)
    counts.publish(3, 5)
    assert counts.least() == 5
    counts.withdraw(3)
    assert counts.least() == 7


def test_a_suspended_worker_is_left_out() -> None:
    """Its number stays, for the time when it is resumed."""
    counts = ConnectionCounts(2)
    counts.publish(1, 3)
    counts.publish(2, 8)
    counts.suspend(1)
    assert counts.is_suspended(1)
    assert not counts.is_suspended(2)
    assert counts.least() == 8
    counts.resume(1)
    assert counts.least() == 3
