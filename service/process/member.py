"""A worker as the supervisor sees it: a process, the channel to it, and how it ended."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from service.http.shares import Shares
from service.process.ipc import Channel, Handler

if TYPE_CHECKING:
    from service.config.settings import Settings
    from service.process.worker import MakeApp

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# a start of the interpreter anew would take longer than all else
FORK = multiprocessing.get_context("fork")


class Member:
    """One worker from its start to its end."""

    def __init__(self, number: int, process: Any, end: socket.socket, channel: Channel) -> None:
        self.number = number
        self.channel = channel
        # it has its application, and may be told what to serve
        self.up = asyncio.Event()
        # it was told to accept connections
        self.accepting = False
        # what it has counted, as far as it has told
        self.counted: Any = None
        # why it could not start, where it said so
        self.failure: Mapping[str, Any] | None = None
        self.end = end
        self._process = process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._reap)

    @classmethod
    async def start(
        cls,
        number: int,
        settings: Settings,
        listener: socket.socket,
        shares: Shares,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        others: Iterable[Member],
    ) -> Member:
        """Fork a worker. `others` are those that live, whose channels it must not hold open."""
        end, its_end = socket.socketpair()
        strange = [end.fileno(), *(other.end.fileno() for other in others)]
        process = FORK.Process(
            target=_begin, args=(strange, settings, listener, shares, its_end, number, make_app)
        )
        # a signal between the fork and the worker's own handlers would be taken by a copy of ours
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            its_end.close()
        member = cls(number, process, end, await Channel.over(end))
        member.channel.handlers |= {
            **handlers,
            "up": member._is_up,
            "failed": member._has_failed,
            "counted": member._has_counted,
        }
        return member

    def accept(self) -> None:
        """Have it accept connections."""
        self.accepting = True
        self.channel.note("accept")

    def drain(self) -> None:
        """Have it finish what it has, and end."""
        if self.accepting:
            self.channel.note("drain")
        else:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    async def ended(self) -> int:
        """Its exit status, below zero for a signal, once it is no more and all that it told is known."""
        status = await asyncio.shield(self._ended)
        await self.channel.closed.wait()
        return status

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set_result(self._process.exitcode)

    async def _is_up(self, _: Any) -> None:
        self.up.set()

    async def _has_failed(self, failure: Mapping[str, Any]) -> None:
        self.failure = failure

    async def _has_counted(self, counted: Any) -> None:
        self.counted = counted


def _begin(
    strange: Iterable[int],
    settings: Settings,
    listener: socket.socket,
    shares: Shares,
    end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> None:
    """What a worker does first: it lets go of what is the supervisor's, and imports what that one lacks."""
    signal.set_wakeup_fd(-1)
    for kind in SIGNALS:
        signal.signal(kind, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for descriptor in strange:
        os.close(descriptor)
    from service.process.worker import run_worker

    run_worker(settings, listener, shares, end, number, make_app)
