"""The ports of all workers: what concerns a worker concerns both of its ports."""

from __future__ import annotations

from turnpike.service.http.connection.listener import listen
from turnpike.service.process.ports import Ports


def test_both_ports_are_suspended_withdrawn_and_closed_together() -> None:
    with listen("127.0.0.1", 0) as http, listen("127.0.0.1", 0) as grpc:
        ports = Ports.of(2, http, grpc)
        assert [port.listener for port in ports] == [http, grpc]
        ports.suspend(1)
        assert [port.counts.is_suspended(1) for port in ports] == [True, True]
        assert ports.is_suspended(1)
        assert not ports.is_suspended(2)
        ports.resume(1)
        assert [port.counts.is_suspended(1) for port in ports] == [False, False]
        ports.close()
        assert http.fileno() == grpc.fileno() == -1


def test_connections_are_those_of_both_ports() -> None:
    """A worker that accepts no connections counts as none, though it may still have some."""
    with listen("127.0.0.1", 0) as http, listen("127.0.0.1", 0) as grpc:
        ports = Ports.of(1, http, grpc)
        assert ports.grpc is not None
        assert (ports.connection_count(1), ports.may_have_connections(1)) == (0, True)
        ports.http.counts.publish(1, 0)
        ports.grpc.counts.publish(1, 0)
        assert not ports.may_have_connections(1)
        ports.grpc.counts.publish(1, 3)
        assert (ports.connection_count(1), ports.may_have_connections(1)) == (3, True)
        ports.withdraw(1)
        assert (ports.connection_count(1), ports.may_have_connections(1)) == (0, True)


def test_there_may_be_one_port() -> None:
    with listen("127.0.0.1", 0) as http:
        assert [port.listener for port in Ports.of(1, http)] == [http]
