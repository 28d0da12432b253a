"""The ports of the service, which all workers share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from turnpike.service.http.connection.connection_counts import NOT_ACCEPTING, ConnectionCounts, SharedPort


@dataclass(frozen=True)
class Ports:
    """The port of HTTP, and that of gRPC if there is one."""

    http: SharedPort
    grpc: SharedPort | None = None

    @classmethod
    def of(cls, workers: int, http: socket.socket, grpc: socket.socket | None = None) -> Ports:
        """The ports of these listeners, for a number of workers."""
        return cls(
            SharedPort(http, ConnectionCounts(workers)),
            None if grpc is None else SharedPort(grpc, ConnectionCounts(workers)),
        )

    def __iter__(self) -> Iterator[SharedPort]:
        yield self.http
        if self.grpc is not None:
            yield self.grpc

    def close(self) -> None:
        """Close this process's copies of the listeners."""
        for port in self:
            port.listener.close()

    def connection_count(self, number: int) -> int:
        """The number of open connections of a worker; 0 if it accepts none."""
        counts = [port.counts.count(number) for port in self]
        return sum(count for count in counts if count != NOT_ACCEPTING)

    def may_have_connections(self, number: int) -> bool:
        """Whether a worker may have connections. The number is unknown once it accepts no more."""
        return any(port.counts.count(number) > 0 for port in self)

    def withdraw(self, number: int) -> None:
        """Leave out a worker that accepts no connections any more."""
        for port in self:
            port.counts.withdraw(number)

    def suspend(self, number: int) -> None:
        """Have a worker accept no connections for now."""
        for port in self:
            port.counts.suspend(number)

    def resume(self, number: int) -> None:
        """Let a suspended worker accept connections again."""
        for port in self:
            port.counts.resume(number)

    def is_suspended(self, number: int) -> bool:
        return self.http.counts.is_suspended(number)
