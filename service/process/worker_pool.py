"""The pool of worker processes: forks them, replaces those that end, and sends requests to all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from turnpike.service.config.settings import Settings
from turnpike.service.errors import ServiceError
from turnpike.service.process.heartbeat import START_FACTOR
from turnpike.service.process.ipc import ChannelClosedError, Handler
from turnpike.service.process.ports import Ports
from turnpike.service.process.worker_handle import WorkerHandle
from turnpike.service.telemetry.counters import RequestCounters, merge_snapshots, without_gauges
from turnpike.service.telemetry.log_writer import log_writer
from turnpike.service.telemetry.traffic_history import MOMENT_SECONDS, TrafficHistory

if TYPE_CHECKING:
    from turnpike.service.process.worker import MakeApp

log = logging.getLogger(__name__)

# pauses between the end of a worker and the start of its replacement; they double each time
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
# a worker that lived this long did not end because of its start: the next pause is the first again
HEALTHY_SECONDS = 10.0
# how long a broadcast waits for workers that are being replaced, and how often it looks at the workers
UP_SECONDS, POLL_SECONDS = 10.0, 0.02
# how long /metrics waits for the counters of a worker before it uses those of the last report
SNAPSHOT_SECONDS = 2.0
# what workers may take to end, beyond the time that the settings give to requests
EXIT_GRACE_SECONDS = 5.0


class StartError(ServiceError):
    """The first workers could not start. `exit_status` is the one that a worker reported."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class WorkerPool:
    """As many workers as the settings say, numbered from 1.

    Args:
        settings: The settings of the service.
        ports: The shared ports.
        make_app: Creates the application in each worker.
        handlers: Answer requests of workers.
        bring_up_to_date: Has a replacement worker serve what the others do, before it accepts connections.
    """

    def __init__(
        self,
        settings: Settings,
        ports: Ports,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        bring_up_to_date: Callable[[WorkerHandle], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._make_app = make_app
        self._handlers = {**handlers, "snapshots": self._snapshots, "traffic": self._traffic}
        self._bring_up_to_date = bring_up_to_date
        self._workers: dict[int, WorkerHandle] = {}
        self._channel_ends: set[socket.socket] = set()
        # watches the worker of each number for silence
        self._watches: dict[int, asyncio.Task[None]] = {}
        # one task per number, which starts a worker again and again
        self._tasks: list[asyncio.Task[None]] = []
        # set when all first workers accept connections
        self._started = asyncio.Event()
        self._ending = False
        # the counters of workers that have ended
        self._past: dict[str, Any] | None = None
        self._history = TrafficHistory()
        self._recording: asyncio.Task[None] | None = None
        # gets the reason if the first workers cannot start
        self.start_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exit_status = 0

    async def start(self) -> None:
        """Fork the workers, and wait until all of them accept connections."""
        numbers = range(1, self._settings.workers + 1)
        self._tasks = [asyncio.create_task(self._keep_running(number)) for number in numbers]
        await self._started.wait()
        self._recording = asyncio.create_task(self._record_traffic())
        workers = [f"worker {number}: {self._workers[number].pid}" for number in sorted(self._workers)]
        log.info("processes: supervisor: %d, %s", os.getpid(), ", ".join(workers))

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        """Send a request to every worker; the results, None for a worker that ended before it gave one.

        Workers that are being replaced are waited for, but not longer than UP_SECONDS. A result may take any
        time. Silent workers are left out if any other worker gives a result.
        """
        # wait for workers
        clock = asyncio.get_running_loop().time
        deadline = clock() + UP_SECONDS
        while not self._ending:
            answering = [worker for worker in self._workers.values() if worker.answers]
            missing = self._settings.workers - len(answering) - len(self._silent_workers())
            if answering and (missing == 0 or clock() > deadline):
                break
            await asyncio.sleep(POLL_SECONDS)
        else:
            return []
        # wait for their results
        requests = {asyncio.create_task(worker.channel.ask(name, argument)): worker for worker in answering}
        waiting = set(requests)
        while waiting and not (
            all(requests[request].heartbeat.silent.is_set() for request in waiting)
            and any(request.done() and request.exception() is None for request in requests)
        ):
            _, waiting = await asyncio.wait(
                waiting, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        for request in waiting:
            request.cancel()
        return [_result(name, request, requests[request]) for request in requests if request not in waiting]

    def outdated(self) -> list[str]:
        """Sentences about the workers that may not serve yet what the others do."""
        updating = [
            f"{worker.name} has not answered for a while; it is loading what the others serve"
            for worker in self._workers.values()
            if worker.accepting and worker.answers and self._ports.is_suspended(worker.number)
        ]
        return [*(worker.silence for worker in self._silent_workers()), *updating]

    def _silent_workers(self) -> list[WorkerHandle]:
        return [worker for worker in self._workers.values() if worker.heartbeat.silent.is_set()]

    async def drain(self) -> None:
        """Have all workers finish their requests and end, and kill those that take longer than allowed."""
        self._ending = True
        # each process holds a port open until it closes its copy
        self._ports.close()
        if self._recording is not None:
            self._recording.cancel()
        for worker in self._workers.values():
            worker.drain()
        # from now on, the time limit of the drain counts
        for watch in self._watches.values():
            watch.cancel()
        if self._tasks:
            seconds = self._settings.drain_wait + self._settings.drain_seconds + EXIT_GRACE_SECONDS
            await asyncio.wait(self._tasks, timeout=seconds)
            self.kill(f"it has not ended within {seconds:g} s")
            await asyncio.wait(self._tasks)

    def kill(self, reason: str) -> None:
        """End the workers that are left at once."""
        for worker in self._workers.values():
            log.error("%s is killed: %s", worker.name, reason)
            worker.kill()

    @property
    def connections(self) -> int:
        """The number of open connections of all workers that accept some."""
        return sum(self._ports.connection_count(worker.number) for worker in self._workers.values())

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
                self._ports,
                self._make_app,
                self._handlers,
                self._channel_ends,
            )
            if self._ending:
                worker.drain()
            if self._started.is_set():
                log.info("worker %d is now process %d", number, worker.pid)
            # let it accept connections whenever it may, and wait for its end
            admission = asyncio.create_task(self._admit(worker))
            watch = self._watches[number] = asyncio.create_task(self._watch(worker))
            status = await worker.ended()
            admission.cancel()
            watch.cancel()
            del self._workers[number]
            self._channel_ends.discard(worker.channel_end)
            had_connections = self._ports.may_have_connections(number)
            self._ports.withdraw(number)
            self._ports.resume(number)
            self._remember(worker)
            # stop, fail, or pause before the next one
            if self._ending:
                self.exit_status |= worker.accepting and status != 0 and had_connections
            elif not self._started.is_set() and not worker.up.is_set():
                self._fail(worker, status)
                return
            else:
                pause = FIRST_PAUSE_SECONDS if clock() - started > HEALTHY_SECONDS else pause
                ending = worker.describe_exit(status)
                log.warning("%s %s; a new one starts in %.1f s", worker.name, ending, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _admit(self, worker: WorkerHandle) -> None:
        """Have a worker accept connections whenever it answers and is up to date.

        The first workers accept them as soon as they are up, and serve models when those are loaded.
        """
        await worker.up.wait()
        if not self._started.is_set():
            worker.accept()
            accepting = sum(worker.accepting for worker in self._workers.values())
            if accepting == self._settings.workers:
                self._started.set()
            await worker.heartbeat.silent.wait()
        while True:
            await worker.heartbeat.answering.wait()
            try:
                await self._bring_up_to_date(worker)
            except ChannelClosedError:
                return
            except Exception:
                # it would never accept a connection; its replacement may
                log.exception("%s could not be brought up to date: it is killed", worker.name)
                worker.kill()
                return
            if worker.answers:
                if worker.accepting:
                    log.info("%s answers again", worker.name)
                worker.accept()
                await worker.heartbeat.silent.wait()

    async def _watch(self, worker: WorkerHandle) -> None:
        """Kill a worker that has been silent for too long."""
        await worker.heartbeat.run(worker.up)
        if worker.up.is_set():
            log.error(
                "%s has not answered for %g s: it is killed, and a new one takes its place",
                worker.name,
                worker.heartbeat.seconds,
            )
        else:
            seconds = START_FACTOR * worker.heartbeat.limit
            text = f"{worker.name} has not started within {seconds:g} s"
            log.error("%s: it is killed", text)
            worker.failure = {"text": text, "status": 1}
        worker.kill()

    def _fail(self, worker: WorkerHandle, status: int) -> None:
        ending = worker.describe_exit(status)
        failure = worker.failure or {"text": f"a worker {ending} before it could serve", "status": 1}
        if not self.start_failed.done():
            self.start_failed.set_exception(StartError(failure["text"], failure["status"]))

    def _remember(self, worker: WorkerHandle) -> None:
        """Add the counters of a worker that ended to those of the past."""
        if worker.counters is not None:
            past = [self._past] if self._past else []
            self._past = merge_snapshots([*past, without_gauges(worker.counters["counters"])])

    async def _snapshots(self, _: Any) -> list[Any]:
        """The counters of all workers, past ones too so that no count decreases, and of this process."""
        # read before the requests: a worker that ends meanwhile is among the workers still, not in the past
        past = [self._past] if self._past else []
        if log_writer.dropped:
            # of this process, which answers no request but has a log
            past.append(without_gauges(RequestCounters().snapshot()))
        snapshots = await asyncio.gather(*map(_snapshot, list(self._workers.values())))
        known = [snapshot for snapshot in snapshots if snapshot is not None]
        return [*known, *({"counters": counters, "drift": {}} for counters in past)]

    async def _record_traffic(self) -> None:
        """Add to the history at intervals. The last reports of the workers are good enough for that."""
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            reports = [worker.counters["counters"] for worker in self._workers.values() if worker.counters]
            past = [self._past] if self._past else []
            try:
                self._history.record(clock() - started, merge_snapshots([*reports, *past]))
            except Exception:
                log.exception("the traffic of the last seconds could not be recorded")
            await asyncio.sleep(MOMENT_SECONDS)

    async def _traffic(self, after: float) -> Any:
        return self._history.to_json(after)


def _result(name: str, request: asyncio.Task[Any], worker: WorkerHandle) -> Any:
    """The result of a request that is done; None if it failed."""
    error = request.exception()
    if error is None:
        return request.result()
    if not isinstance(error, ChannelClosedError):
        log.error("%s: %s: %s", worker.name, name, error or type(error).__name__)
    return None


async def _snapshot(worker: WorkerHandle) -> Any:
    """The counters of a worker, those of its last report if it does not answer, or None before any report."""
    if worker.answers:
        with contextlib.suppress(ChannelClosedError, TimeoutError):
            # stored, so that counts that were shown once are not lost if it ends before its next report
            worker.counters = await worker.channel.ask("snapshot", None, SNAPSHOT_SECONDS)
            return worker.counters
    return worker.counters and {
        **worker.counters,
        "counters": {**worker.counters["counters"], "answering": 0},
    }
