"""The workers together: each is replaced when it ends, all are asked at once, and all end together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from service.errors import ServiceError
from service.http.shares import Shares
from service.process.ipc import Gone, Handler
from service.process.member import Member
from service.telemetry.counters import ended, merge

if TYPE_CHECKING:
    from service.config.settings import Settings
    from service.process.worker import MakeApp

log = logging.getLogger(__name__)

# between a worker's end and the next one in its place
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
# how long those that are just being replaced are waited for, when all are asked
UP_SECONDS, STEP_SECONDS = 10.0, 0.02
# a worker that lived as long did not end by its start
HEALTHY_SECONDS = 10.0
# counts are wanted while somebody waits
SNAPSHOT_SECONDS = 2.0
# what a worker may take for its end beyond what the settings give to requests
SPARE_SECONDS = 5.0


class StartError(ServiceError):
    """The first workers could not start; `exit_status` is as they said."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Team:
    """As many workers as the settings say. `introduce` has one that comes later serve what the others do."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        make_app: MakeApp,
        handlers: Mapping[str, Handler],
        introduce: Callable[[Member], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._shares = Shares(settings.workers)
        self._make_app = make_app
        self._handlers = {**handlers, "snapshots": self._snapshots}
        self._introduce = introduce
        self._members: dict[int, Member] = {}
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
            await asyncio.sleep(STEP_SECONDS)
        up = [member for member in self._members.values() if member.up.is_set()]
        asked = [member.channel.ask(what, argument) for member in up]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for member, answer in zip(up, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, Gone):
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
            patience = self._settings.drain_wait + self._settings.drain_seconds + SPARE_SECONDS
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
        pause = FIRST_PAUSE
        while not self._ending:
            born = clock()
            member = self._members[number] = await Member.start(
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
                pause = FIRST_PAUSE if clock() - born > HEALTHY_SECONDS else pause
                log.warning(
                    "worker %d ended with status %d; another one starts in %.1f s", number, status, pause
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _welcome(self, member: Member) -> None:
        await member.up.wait()
        if self._up.is_set():
            try:
                await self._introduce(member)
            except Gone:
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

    def _fail(self, member: Member, status: int) -> None:
        failure = member.failure or {
            "text": f"a worker ended with status {status} before it could serve",
            "status": 1,
        }
        if not self.failed.done():
            self.failed.set_exception(StartError(failure["text"], failure["status"]))

    def _remember(self, member: Member) -> None:
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


async def _snapshot(member: Member) -> Any:
    """What a worker has counted, as it told last where it does not answer; None where it never told."""
    if member.up.is_set():
        with contextlib.suppress(Gone, TimeoutError):
            # kept, so that what was once shown is not forgotten if it ends before its next report
            member.counted = await member.channel.ask("snapshot", None, SNAPSHOT_SECONDS)
    return member.counted
