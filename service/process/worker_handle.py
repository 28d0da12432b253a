"""The supervisor's side of one worker process: forks it, sends it requests, and waits for its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from turnpike.service.config.memory_share import oom_kills
from turnpike.service.config.settings import Settings
from turnpike.service.memory.process_limit import offer_to_oom_killer
from turnpike.service.process.heartbeat import Heartbeat
from turnpike.service.process.ipc import Handler, IpcChannel
from turnpike.service.process.native_output import NativeOutput
from turnpike.service.process.ports import Ports
from turnpike.service.telemetry.log_writer import log_writer

if TYPE_CHECKING:
    from turnpike.service.process.worker import MakeApp

log = logging.getLogger(__name__)

HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# a forked worker shares the supervisor's imports; a spawned one would start the interpreter again
FORK_CONTEXT = multiprocessing.get_context("fork")


class WorkerHandle:
    """The supervisor's side of one worker process."""

    def __init__(
        self,
        number: int,
        process: Any,
        channel_end: socket.socket,
        channel: IpcChannel,
        native_output: NativeOutput,
        ports: Ports,
        silence_limit: float,
    ) -> None:
        self.number = number
        self.channel = channel
        self.channel_end = channel_end
        self.heartbeat = Heartbeat(channel, silence_limit, self._on_silence)
        # set when the worker has its application and answers requests of the supervisor
        self.up = asyncio.Event()
        # whether it was asked to accept connections
        self.accepting = False
        # its last known counters
        self.counters: Any = None
        # why it could not start, if it reported that
        self.failure: Mapping[str, Any] | None = None
        # whether this process has killed it
        self.killed = False
        self._exit_reasons = ExitReasons()
        self._process = process
        self._native_output = native_output
        self._ports = ports
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._reap)

    @classmethod
    async def start(
        cls,
        number: int,
        settings: Settings,
        ports: Ports,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        channel_ends: set[socket.socket],
    ) -> WorkerHandle:
        """Fork a worker.

        Args:
            number: The worker's number, from 1.
            settings: The settings of the service.
            ports: The shared ports.
            make_app: Creates the application in the worker.
            handlers: Answer requests of the worker.
            channel_ends: This process's ends of the channels to all workers. The new one is added, and the
                worker closes its copies of all.
        """
        our_end, worker_end = socket.socketpair()
        native_output = NativeOutput()
        # added before other workers are forked, which would keep this channel open otherwise
        channel_ends.add(our_end)
        # that of a worker that is about to end is closed already
        foreign = [end.fileno() for end in channel_ends if end.fileno() >= 0]
        process = FORK_CONTEXT.Process(
            target=_worker_main,
            args=(foreign, native_output, settings, ports, worker_end, number, make_app),
        )
        # until the worker has its own handlers, it would handle a signal with a copy of the supervisor's
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            worker_end.close()
        native_output.log_lines(f"worker {number} (process {process.pid})")
        channel = await IpcChannel.over(our_end)
        worker = cls(number, process, our_end, channel, native_output, ports, settings.worker_seconds)
        worker.channel.handlers |= {
            **handlers,
            "up": worker._on_up,
            "failed": worker._on_failed,
            "counters": worker._on_counters,
        }
        return worker

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def name(self) -> str:
        """Its number and its process, for the log."""
        return f"worker {self.number} (process {self.pid})"

    @property
    def answers(self) -> bool:
        """Whether it answers requests of the supervisor."""
        return self.up.is_set() and not self.heartbeat.silent.is_set()

    @property
    def silence(self) -> str:
        """A sentence that says for how long it has not answered, and what happens then."""
        limit = self.heartbeat.limit
        end = f"replaced after {limit:g} s" if limit else "not replaced, as --worker-seconds is 0"
        return f"{self.name} has not answered for {self.heartbeat.seconds:g} s; it is {end}"

    def accept(self) -> None:
        """Have it accept connections, at first or again."""
        self._ports.resume(self.number)
        if not self.accepting:
            self.accepting = True
            self.channel.notify("accept")

    def drain(self) -> None:
        """Ask it to finish its requests and end. If a signal has stopped it, it continues."""
        if self.accepting:
            self.channel.notify("drain")
        else:
            self._process.terminate()
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()

    def describe_exit(self, status: int) -> str:
        """How it ended, as the end of a sentence."""
        return self._exit_reasons.describe(status, killed=self.killed)

    async def ended(self) -> int:
        """Wait until it has ended and all its messages were handled; its exit status, or -signal."""
        status = await asyncio.shield(self._ended)
        await self.channel.closed.wait()
        return status

    def _on_silence(self) -> None:
        log.warning("%s; until it answers, it gets no new connections", self.silence)
        self._ports.suspend(self.number)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._native_output.close()
        self._ended.set_result(self._process.exitcode)

    async def _on_up(self, _: Any) -> None:
        self.up.set()

    async def _on_failed(self, failure: Mapping[str, Any]) -> None:
        self.failure = failure

    async def _on_counters(self, counters: Any) -> None:
        self.counters = counters


class ExitReasons:
    """Says how a process of the service ended that starts now.

    Args:
        count_oom_kills: How many processes of this container the kernel has killed because memory was short;
            None if it does not say.
    """

    def __init__(self, count_oom_kills: Callable[[], int | None] = oom_kills) -> None:
        self._count_oom_kills = count_oom_kills
        self._oom_kills = count_oom_kills()

    def describe(self, status: int, *, killed: bool) -> str:
        """How a process ended, as the end of a sentence.

        Args:
            status: Its exit status or -signal.
            killed: Whether this process has killed it.
        """
        if status >= 0:
            return f"ended with status {status}"
        if status == -signal.SIGKILL and not killed:
            return f"was ended by SIGKILL{self._likely_cause()}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"

    def _likely_cause(self) -> str:
        before, self._oom_kills = self._oom_kills, self._count_oom_kills()
        if before is None or self._oom_kills is None:
            return " (perhaps because the memory of the machine was used up)"
        if self._oom_kills > before:
            return f" (the kernel found no memory left: oom_kill is now {self._oom_kills})"
        return ""


def _worker_main(
    foreign: Iterable[int],
    native_output: NativeOutput,
    settings: Settings,
    ports: Ports,
    channel_end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> None:
    """The forked process: undo what belongs to the supervisor, then import and run the worker.

    `foreign` are descriptors of the supervisor, which would keep the channels of other workers open.
    """
    offer_to_oom_killer()
    native_output.redirect()
    signal.set_wakeup_fd(-1)
    for handled in HANDLED_SIGNALS:
        signal.signal(handled, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
    for descriptor in foreign:
        os.close(descriptor)
    status = 1
    # The worker enables the garbage collector when it serves. Almost all objects of its imports stay. With
    # collections, the first answer came after 0.52 s instead of 0.46 s, and as they write to objects that are
    # shared with the supervisor, two workers took 9 MiB more.
    gc.disable()
    try:
        from turnpike.service.process.worker import run_worker

        status = run_worker(settings, ports, channel_end, number, make_app)
    except BaseException:
        log.exception("worker %d failed", number)
    finally:
        log_writer.flush()
        # a normal exit would wait for the thread of a run that was cut off
        os._exit(status)
