"""The channel between processes: every question gets its answer, an error, or word that nobody is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from service.errors import ForbiddenError, InternalError, NotFoundError, NotReadyError, OverloadedError
from service.process.ipc import ChannelClosedError, IpcChannel

Ends = tuple[IpcChannel, IpcChannel]


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[Ends]:
    one, other = socket.socketpair()
    ends = await IpcChannel.over(one), await IpcChannel.over(other)
    try:
        yield ends
    finally:
        await asyncio.gather(*(end.close() for end in ends))


def run(test: Callable[[IpcChannel, IpcChannel], Awaitable[None]], *, fast: bool = False) -> None:
    async def scene() -> None:
        async with pair() as ends:
            await test(*ends)

    (uvloop.run if fast else asyncio.run)(scene())


async def double(given: Any) -> Any:
    return [given, given]


@pytest.mark.parametrize("fast", [False, True])
def test_both_ends_ask_and_answer(fast: bool) -> None:
    """On either kind of event loop, since the ends live on one of each."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        one.handlers["double"] = other.handlers["double"] = double
        assert await one.ask("double", {"a": 1}) == [{"a": 1}, {"a": 1}]
        assert await other.ask("double") == [None, None]

    run(test, fast=fast)


def test_answers_find_their_questions() -> None:
    """A hundred at once, answered in another order."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        async def late(given: int) -> int:
            await asyncio.sleep((given * 7 % 13) / 1000)
            return given * given

        other.handlers["square"] = late
        answers = await asyncio.gather(*(one.ask("square", number) for number in range(100)))
        assert answers == [number * number for number in range(100)]

    run(test)


def test_a_note_needs_no_answer() -> None:
    """It arrives, in order."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        heard = []

        async def hear(given: Any) -> None:
            heard.append(given)

        other.handlers["hear"] = hear
        for number in range(10):
            one.notify("hear", number)
        other.handlers["double"] = double
        await one.ask("double")
        assert heard == list(range(10))

    run(test)


@pytest.mark.parametrize(
    "error",
    [NotFoundError("no such model"), ForbiddenError("no"), NotReadyError("wait"), OverloadedError("full")],
)
def test_an_error_of_ours_crosses(error: Exception) -> None:
    """With its kind, so its status, and its sentence."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        async def refuse(_: Any) -> None:
            raise error

        other.handlers["refuse"] = refuse
        with pytest.raises(type(error), match=f"^{error}$"):
            await one.ask("refuse")

    run(test)


@pytest.mark.parametrize("fault", ["raises", "unsayable", "absent"])
def test_what_fails_is_said_and_logged(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, the asker one sentence, and the channel goes on."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        async def handler(_: Any) -> Any:
            if fault == "raises":
                raise ValueError("secret")
            return object()

        if fault != "absent":
            other.handlers["faulty"] = handler
        with caplog.at_level(logging.ERROR), pytest.raises(InternalError) as raised:
            await one.ask("faulty")
        assert str(raised.value) == "faulty: failed; the log says why"
        assert caplog.records[0].exc_info is not None
        other.handlers["double"] = double
        assert await one.ask("double", 1) == [1, 1]

    run(test)


def test_whoever_waits_learns_that_the_other_is_gone() -> None:
    """At once when it goes, and at once for what is asked after that."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        async def never(_: Any) -> None:
            await asyncio.Event().wait()

        other.handlers["never"] = never
        waiting = asyncio.create_task(one.ask("never"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await other.close()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        assert one.closed.is_set()
        with pytest.raises(ChannelClosedError):
            await one.ask("anything")
        one.notify("anything")

    run(test)


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    """TimeoutError after the time given; an answer that comes after that is passed over."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        go = asyncio.Event()

        async def late(_: Any) -> int:
            await go.wait()
            return 1

        other.handlers |= {"late": late, "double": double}
        with pytest.raises(TimeoutError):
            await one.ask("late", seconds=0.05)
        go.set()
        assert await one.ask("double", 2) == [2, 2]

    run(test)


def test_large_messages_arrive() -> None:
    """Counts of many models do not fit into one piece of a socket."""

    async def test(one: IpcChannel, other: IpcChannel) -> None:
        other.handlers["double"] = double
        given = {str(number): "x" * 100 for number in range(20_000)}
        assert await one.ask("double", given) == [given, given]

    run(test)


def test_what_is_no_message_ends_the_channel(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits is told, rather than left."""

    async def scene() -> None:
        one, other = socket.socketpair()
        channel = await IpcChannel.over(one)
        waiting = asyncio.create_task(channel.ask("anything"))
        await asyncio.sleep(0)
        other.sendall(b"not json\n")
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        other.close()
        assert "broke" in caplog.text

    asyncio.run(scene())


def test_an_end_that_had_not_read_all_is_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is killed resets the connection: its end is told by who keeps it, and nothing broke."""

    async def scene() -> None:
        one, other = socket.socketpair()
        channel = await IpcChannel.over(one)
        waiting = asyncio.create_task(channel.ask("anything"))
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        assert caplog.messages == []

    asyncio.run(scene())
