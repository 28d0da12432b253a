"""The workers together: each is replaced when it ends, all are asked at once, and all end together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from service.errors import ServiceError
from service.http.listener import ConnectionCounts
from service.process.ipc import ChannelClosedError, Handler, IpcChannel
from service.telemetry.counters import ended, merge

if TYPE_CHECKING:
    from service.config.settings import Settings
    from service.process.worker import MakeApp

log = logging.getLogger(__name__)

HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# a start of the interpreter anew would take longer than all else
FORK_CONTEXT = multiprocessing.get_context("fork")


class WorkerHandle:
    """One worker from its start to its end."""

    def __init__(self, number: int, process: Any, end: socket.socket, channel: IpcChannel) -> None:
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
        shares: ConnectionCounts,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        others: Iterable[WorkerHandle],
    ) -> WorkerHandle:
        """Fork a worker. `others` are those that live, whose channels it must not hold open."""
        end, its_end = socket.socketpair()
        strange = [end.fileno(), *(other.end.fileno() for other in others)]
        process = FORK_CONTEXT.Process(
            target=_worker_main, args=(strange, settings, listener, shares, its_end, number, make_app)
        )
        # a signal between the fork and the worker's own handlers would be taken by a copy of ours
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            its_end.close()
        member = cls(number, process, end, await IpcChannel.over(end))
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
        self.channel.notify("accept")

    def drain(self) -> None:
        """Have it finish what it has, and end."""
        if self.accepting:
            self.channel.notify("drain")
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


def _worker_main(
    strange: Iterable[int],
    settings: Settings,
    listener: socket.socket,
    shares: ConnectionCounts,
    end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> None:
    """What a worker does first: it lets go of what is the supervisor's, and imports what that one lacks."""
    signal.set_wakeup_fd(-1)
    for kind in HANDLED_SIGNALS:
        signal.signal(kind, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
    for descriptor in strange:
        os.close(descriptor)
    from service.process.worker import run_worker

    run_worker(settings, listener, shares, end, number, make_app)


# between a worker's end and the next one in its place
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
# how long those that are just being replaced are waited for, when all are asked
UP_SECONDS, UP_POLL_SECONDS = 10.0, 0.02
# a worker that lived as long did not end by its start
HEALTHY_SECONDS = 10.0
# counts are wanted while somebody waits
SNAPSHOT_SECONDS = 2.0
# what a worker may take for its end beyond what the settings give to requests
EXIT_GRACE_SECONDS = 5.0


class StartError(ServiceError):
    """The first workers could not start; `exit_status` is as they said."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class WorkerPool:
    """As many workers as the settings say. `introduce` has one that comes later serve what the others do."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        introduce: Callable[[WorkerHandle], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._shares = ConnectionCounts(settings.workers)
        self._make_app = make_app
        self._handlers = {**handlers, "snapshots": self._snapshots}
        self._introduce = introduce
        self._members: dict[int, WorkerHandle] = {}
        self._kept: list[asyncio.Task[None]] = []
        self._up = asyncio.Event()
        self._ending = False
        # what workers that are no more have counted
        self._past: dict[str, Any] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0

    async def start(self) -> None:
        """Fork the workers, and wait until all of them are up and accept connections."""
        numbers = range(1, self._settings.workers + 1)
        self._kept = [asyncio.create_task(self._keep(number)) for number in numbers]
        await self._up.wait()

    async def broadcast(self, what: str, argument: Any) -> list[Any]:
        """The answer of each worker, once all are up or that takes too long; None of one that gave none."""
        late = asyncio.get_running_loop().time() + UP_SECONDS
        while not self._all_up() and asyncio.get_running_loop().time() < late and not self._ending:
            await asyncio.sleep(UP_POLL_SECONDS)
        up = [member for member in self._members.values() if member.up.is_set()]
        asked = [member.channel.ask(what, argument) for member in up]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for member, answer in zip(up, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ChannelClosedError):
                log.error("worker %d: %s: %s", member.number, what, answer or type(answer).__name__)
        return [None if isinstance(answer, BaseException) else answer for answer in answers]

    def _all_up(self) -> bool:
        up = [member for member in self._members.values() if member.up.is_set()]
        return len(up) == self._settings.workers

    async def drain(self) -> None:
        """Have all finish what they have, and wait for that as long as the settings say."""
        self._ending = True
        # the last one to close it closes the port
        self._listener.close()
        for member in self._members.values():
            member.drain()
        if self._kept:
            patience = self._settings.drain_wait + self._settings.drain_seconds + EXIT_GRACE_SECONDS
            await asyncio.wait(self._kept, timeout=patience)
            self.kill()
            await asyncio.wait(self._kept)

    def kill(self) -> None:
        """End those that are left at once."""
        for member in self._members.values():
            log.error("worker %d is ended before its time", member.number)
            member.kill()

    async def _keep(self, number: int) -> None:
        """Have a worker of this number until the team ends."""
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while not self._ending:
            born = clock()
            member = self._members[number] = await WorkerHandle.start(
                number,
                self._settings,
                self._listener,
                self._shares,
                self._make_app,
                self._handlers,
                self._members.values(),
            )
            if self._ending:
                member.drain()
            welcome = asyncio.create_task(self._welcome(member))
            status = await member.ended()
            welcome.cancel()
            del self._members[number]
            self._shares.leave(number)
            self._remember(member)
            if self._ending:
                self.status |= member.accepting and status != 0
            elif not self._up.is_set() and not member.up.is_set():
                self._fail(member, status)
                return
            else:
                pause = FIRST_PAUSE_SECONDS if clock() - born > HEALTHY_SECONDS else pause
                log.warning(
                    "worker %d ended with status %d; another one starts in %.1f s", number, status, pause
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _welcome(self, member: WorkerHandle) -> None:
        await member.up.wait()
        if self._up.is_set():
            try:
                await self._introduce(member)
            except ChannelClosedError:
                return
            except Exception:
                # rather a new one than one that never answers
                log.exception("worker %d could not be told what to serve", member.number)
                member.kill()
                return
            member.accept()
            return
        member.accept()
        accepting = sum(member.accepting for member in self._members.values())
        if accepting == self._settings.workers:
            self._up.set()

    def _fail(self, member: WorkerHandle, status: int) -> None:
        failure = member.failure or {
            "text": f"a worker ended with status {status} before it could serve",
            "status": 1,
        }
        if not self.failed.done():
            self.failed.set_exception(StartError(failure["text"], failure["status"]))

    def _remember(self, member: WorkerHandle) -> None:
        if member.counted is not None:
            past = [self._past] if self._past else []
            self._past = merge([*past, ended(member.counted["meter"])])

    async def _snapshots(self, _: Any) -> list[Any]:
        """What every worker has counted, and what those had that are no more: a count never goes back."""
        # taken first: who ends meanwhile is among the members still, and is not to be counted twice
        past = self._past
        answers = await asyncio.gather(*map(_snapshot, list(self._members.values())))
        found = [answer for answer in answers if answer is not None]
        return [*found, {"meter": past, "drift": {}}] if past else found


async def _snapshot(member: WorkerHandle) -> Any:
    """What a worker has counted, as it told last where it does not answer; None where it never told."""
    if member.up.is_set():
        with contextlib.suppress(ChannelClosedError, TimeoutError):
            # kept, so that what was once shown is not forgotten if it ends before its next report
            member.counted = await member.channel.ask("snapshot", None, SNAPSHOT_SECONDS)
    return member.counted
