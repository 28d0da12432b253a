"""The pool of worker processes: forks them, replaces those that end, and sends requests to all of them."""

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
from service.http.connection.listener import ConnectionCounts
from service.process.ipc import ChannelClosedError, Handler, IpcChannel
from service.telemetry.counters import merge_snapshots, without_gauges

if TYPE_CHECKING:
    from service.config.settings import Settings
    from service.process.worker import MakeApp

log = logging.getLogger(__name__)

HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# a forked worker shares the supervisor's imports; a spawned one would start the interpreter again
FORK_CONTEXT = multiprocessing.get_context("fork")

# pauses between the end of a worker and the start of its replacement; they double each time
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
# a worker that lived this long did not end because of its start: the next pause is the first again
HEALTHY_SECONDS = 10.0
# how long a broadcast waits for workers that are being replaced, and how often it looks
UP_SECONDS, UP_POLL_SECONDS = 10.0, 0.02
# how long /metrics waits for the counters of a worker before it uses those of the last report
SNAPSHOT_SECONDS = 2.0
# what workers may take to end, beyond the time that the settings give to requests
EXIT_GRACE_SECONDS = 5.0


class StartError(ServiceError):
    """The first workers could not start. `exit_status` is the one that a worker reported."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class WorkerHandle:
    """The supervisor's side of one worker process."""

    def __init__(self, number: int, process: Any, channel_end: socket.socket, channel: IpcChannel) -> None:
        self.number = number
        self.channel = channel
        self.channel_end = channel_end
        # set when the worker has its application and answers requests of the supervisor
        self.up = asyncio.Event()
        # whether it was asked to accept connections
        self.accepting = False
        # its last known counters
        self.counters: Any = None
        # why it could not start, if it reported that
        self.failure: Mapping[str, Any] | None = None
        self._process = process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._reap)

    @classmethod
    async def start(
        cls,
        number: int,
        settings: Settings,
        listener: socket.socket,
        counts: ConnectionCounts,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        others: Iterable[WorkerHandle],
    ) -> WorkerHandle:
        """Fork a worker.

        Args:
            number: The worker's number, from 1.
            settings: The settings of the service.
            listener: The shared port.
            counts: The numbers of open connections of all workers.
            make_app: Creates the application in the worker.
            handlers: Answer requests of the worker.
            others: The living workers; the new one closes its copies of their channels.
        """
        our_end, worker_end = socket.socketpair()
        foreign = [our_end.fileno(), *(other.channel_end.fileno() for other in others)]
        process = FORK_CONTEXT.Process(
            target=_worker_main, args=(foreign, settings, listener, counts, worker_end, number, make_app)
        )
        # until the worker has its own handlers, it would handle a signal with a copy of the supervisor's
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            worker_end.close()
        worker = cls(number, process, our_end, await IpcChannel.over(our_end))
        worker.channel.handlers |= {
            **handlers,
            "up": worker._on_up,
            "failed": worker._on_failed,
            "counters": worker._on_counters,
        }
        return worker

    def accept(self) -> None:
        """Ask it to accept connections."""
        self.accepting = True
        self.channel.notify("accept")

    def drain(self) -> None:
        """Ask it to finish its requests and end."""
        if self.accepting:
            self.channel.notify("drain")
        else:
            self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def ended(self) -> int:
        """Wait until it has ended and all its messages were handled; its exit status, or -signal."""
        status = await asyncio.shield(self._ended)
        await self.channel.closed.wait()
        return status

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set_result(self._process.exitcode)

    async def _on_up(self, _: Any) -> None:
        self.up.set()

    async def _on_failed(self, failure: Mapping[str, Any]) -> None:
        self.failure = failure

    async def _on_counters(self, counters: Any) -> None:
        self.counters = counters


def _worker_main(
    foreign: Iterable[int],
    settings: Settings,
    listener: socket.socket,
    counts: ConnectionCounts,
    channel_end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> None:
    """The forked process: undo what belongs to the supervisor, then import and run the worker.

    `foreign` are descriptors of the supervisor, which would keep the channels of other workers open.
    """
    signal.set_wakeup_fd(-1)
    for handled in HANDLED_SIGNALS:
        signal.signal(handled, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
    for descriptor in foreign:
        os.close(descriptor)
    from service.process.worker import run_worker

    run_worker(settings, listener, counts, channel_end, number, make_app)


class WorkerPool:
    """As many workers as the settings say, numbered from 1.

    Args:
        settings: The settings of the service.
        listener: The shared port.
        make_app: Creates the application in each worker.
        handlers: Answer requests of workers.
        bring_up_to_date: Has a replacement worker serve what the others do, before it accepts connections.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        bring_up_to_date: Callable[[WorkerHandle], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._counts = ConnectionCounts(settings.workers)
        self._make_app = make_app
        self._handlers = {**handlers, "snapshots": self._snapshots}
        self._bring_up_to_date = bring_up_to_date
        self._workers: dict[int, WorkerHandle] = {}
        # one task per number, which starts a worker again and again
        self._tasks: list[asyncio.Task[None]] = []
        # set when all first workers accept connections
        self._started = asyncio.Event()
        self._ending = False
        # the counters of workers that have ended
        self._past: dict[str, Any] | None = None
        # gets the reason if the first workers cannot start
        self.start_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exit_status = 0

    async def start(self) -> None:
        """Fork the workers, and wait until all of them accept connections."""
        numbers = range(1, self._settings.workers + 1)
        self._tasks = [asyncio.create_task(self._keep_running(number)) for number in numbers]
        await self._started.wait()

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        """Send a request to every worker that is up; the answers, None for a worker that gave none.

        Workers that are being replaced are waited for, but not longer than UP_SECONDS.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + UP_SECONDS
        while not self._all_up() and clock() < deadline and not self._ending:
            await asyncio.sleep(UP_POLL_SECONDS)
        up = [worker for worker in self._workers.values() if worker.up.is_set()]
        requests = [worker.channel.ask(name, argument) for worker in up]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        for worker, answer in zip(up, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ChannelClosedError):
                log.error("worker %d: %s: %s", worker.number, name, answer or type(answer).__name__)
        return [None if isinstance(answer, BaseException) else answer for answer in answers]

    def _all_up(self) -> bool:
        up = [worker for worker in self._workers.values() if worker.up.is_set()]
        return len(up) == self._settings.workers

    async def drain(self) -> None:
        """Have all workers finish their requests and end, and kill those that take longer than allowed."""
        self._ending = True
        # each process holds the port open until it closes its copy
        self._listener.close()
        for worker in self._workers.values():
            worker.drain()
        if self._tasks:
            seconds = self._settings.drain_wait + self._settings.drain_seconds + EXIT_GRACE_SECONDS
            await asyncio.wait(self._tasks, timeout=seconds)
            self.kill()
            await asyncio.wait(self._tasks)

    def kill(self) -> None:
        """End the workers that are left at once."""
        for worker in self._workers.values():
            log.error("killing worker %d before it has finished", worker.number)
            worker.kill()

    async def _keep_running(self, number: int) -> None:
        """Start a worker of this number, and a new one whenever it ends, until the pool ends."""
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while not self._ending:
            # start
            started = clock()
            worker = self._workers[number] = await WorkerHandle.start(
                number,
                self._settings,
                self._listener,
                self._counts,
                self._make_app,
                self._handlers,
                self._workers.values(),
            )
            if self._ending:
                worker.drain()
            # let it accept connections as soon as it may, and wait for its end
            admission = asyncio.create_task(self._admit(worker))
            status = await worker.ended()
            admission.cancel()
            del self._workers[number]
            self._counts.withdraw(number)
            self._remember(worker)
            # stop, fail, or pause before the next one
            if self._ending:
                self.exit_status |= worker.accepting and status != 0
            elif not self._started.is_set() and not worker.up.is_set():
                self._fail(worker, status)
                return
            else:
                pause = FIRST_PAUSE_SECONDS if clock() - started > HEALTHY_SECONDS else pause
                log.warning(
                    "worker %d ended with status %d; a new one starts in %.1f s", number, status, pause
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _admit(self, worker: WorkerHandle) -> None:
        """Have a worker accept connections once it is up and, if it is a replacement, up to date."""
        await worker.up.wait()
        if self._started.is_set():
            try:
                await self._bring_up_to_date(worker)
            except ChannelClosedError:
                return
            except Exception:
                # it would never accept a connection; its replacement may
                log.exception("worker %d could not be brought up to date", worker.number)
                worker.kill()
                return
            worker.accept()
            return
        worker.accept()
        accepting = sum(worker.accepting for worker in self._workers.values())
        if accepting == self._settings.workers:
            self._started.set()

    def _fail(self, worker: WorkerHandle, status: int) -> None:
        failure = worker.failure or {
            "text": f"a worker ended with status {status} before it could serve",
            "status": 1,
        }
        if not self.start_failed.done():
            self.start_failed.set_exception(StartError(failure["text"], failure["status"]))

    def _remember(self, worker: WorkerHandle) -> None:
        """Add the counters of a worker that ended to those of the past."""
        if worker.counters is not None:
            past = [self._past] if self._past else []
            self._past = merge_snapshots([*past, without_gauges(worker.counters["counters"])])

    async def _snapshots(self, _: Any) -> list[Any]:
        """The counters of every worker and of those that have ended, so that no count ever decreases."""
        # read before the requests: a worker that ends meanwhile is among the workers still, not in the past
        past = self._past
        snapshots = await asyncio.gather(*map(_snapshot, list(self._workers.values())))
        known = [snapshot for snapshot in snapshots if snapshot is not None]
        return [*known, {"counters": past, "drift": {}}] if past else known


async def _snapshot(worker: WorkerHandle) -> Any:
    """The counters of a worker, those of its last report if it does not answer, or None before any report."""
    if worker.up.is_set():
        with contextlib.suppress(ChannelClosedError, TimeoutError):
            # stored, so that counts that were shown once are not lost if it ends before its next report
            worker.counters = await worker.channel.ask("snapshot", None, SNAPSHOT_SECONDS)
    return worker.counters
