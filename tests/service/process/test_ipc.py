"""The channel between processes: every request gets its result, an error, or ChannelClosedError."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from turnpike.service.errors import (
    ForbiddenError,
    InternalError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
)
from turnpike.service.process.ipc import ChannelClosedError, IpcChannel

Ends = tuple[IpcChannel, IpcChannel]


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[Ends]:
    channel, other_end = socket.socketpair()
    ends = await IpcChannel.over(channel), await IpcChannel.over(other_end)
    try:
        yield ends
    finally:
        await asyncio.gather(*(end.close() for end in ends))


def run(test: Callable[[IpcChannel, IpcChannel], Awaitable[None]], *, fast: bool = False) -> None:
    async def scenario() -> None:
        async with pair() as ends:
            await test(*ends)

    (uvloop.run if fast else asyncio.run)(scenario())


async def double(value: Any) -> Any:
    return [value, value]


@pytest.mark.parametrize("fast", [False, True])
def test_both_ends_can_send_requests(fast: bool) -> None:
    """The supervisor runs asyncio's event loop, and workers run uvloop."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        channel.handlers["double"] = other_end.handlers["double"] = double
        assert await channel.ask("double", {"a": 1}) == [{"a": 1}, {"a": 1}]
        assert await other_end.ask("double") == [None, None]

    run(test, fast=fast)


def test_responses_are_matched_to_their_requests() -> None:
    """A hundred requests are sent at once and answered in another order."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        async def slow_square(number: int) -> int:
            await asyncio.sleep((number * 7 % 13) / 1000)
            return number * number

        other_end.handlers["square"] = slow_square
        answers = await asyncio.gather(*(channel.ask("square", number) for number in range(100)))
        assert answers == [number * number for number in range(100)]

    run(test)


def test_a_notification_needs_no_response() -> None:
    """Notifications arrive in order."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        received = []

        async def receive(value: Any) -> None:
            received.append(value)

        other_end.handlers["receive"] = receive
        for number in range(10):
            channel.notify("receive", number)
        other_end.handlers["double"] = double
        await channel.ask("double")
        assert received == list(range(10))

    run(test)


@pytest.mark.parametrize(
    "error",
    [NotFoundError("no such model"), ForbiddenError("no"), NotReadyError("wait"), OverloadedError("full")],
)
def test_service_errors_reach_the_other_end(error: Exception) -> None:
    """They keep their class, and so their status, and their message."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        async def refuse(_: Any) -> None:
            raise error

        other_end.handlers["refuse"] = refuse
        with pytest.raises(type(error), match=f"^{error}$"):
            await channel.ask("refuse")

    run(test)


@pytest.mark.parametrize("fault", ["raises", "not json", "absent"])
def test_a_failure_is_reported_and_logged(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, the other end one sentence, and the channel still works."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        async def handler(_: Any) -> Any:
            if fault == "raises":
                raise ValueError("secret")
            return object()

        if fault != "absent":
            other_end.handlers["faulty"] = handler
        with caplog.at_level(logging.ERROR), pytest.raises(InternalError) as raised:
            await channel.ask("faulty")
        assert str(raised.value) == "faulty: failed; the log says why"
        assert caplog.records[0].exc_info is not None
        other_end.handlers["double"] = double
        assert await channel.ask("double", 1) == [1, 1]

    run(test)


def test_pending_requests_fail_when_the_other_end_closes() -> None:
    """They fail at once, as do later requests."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        async def never(_: Any) -> None:
            await asyncio.Event().wait()

        other_end.handlers["never"] = never
        waiting = asyncio.create_task(channel.ask("never"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await other_end.close()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        assert channel.closed.is_set()
        with pytest.raises(ChannelClosedError):
            await channel.ask("anything")
        channel.notify("anything")

    run(test)


def test_a_missing_response_times_out() -> None:
    """A response that comes after the timeout is ignored."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        go = asyncio.Event()

        async def late(_: Any) -> int:
            await go.wait()
            return 1

        other_end.handlers |= {"late": late, "double": double}
        with pytest.raises(TimeoutError):
            await channel.ask("late", seconds=0.05)
        go.set()
        assert await channel.ask("double", 2) == [2, 2]

    run(test)


def test_large_messages_arrive() -> None:
    """Counters of many models are larger than the buffer of a socket."""

    async def test(channel: IpcChannel, other_end: IpcChannel) -> None:
        other_end.handlers["double"] = double
        value = {str(number): "x" * 100 for number in range(20_000)}
        assert await channel.ask("double", value) == [value, value]

    run(test)


@pytest.mark.parametrize(
    "message", [b"not json\n", b"1\n", b"{}\n", b'{"ask":"double"}\n', b'{"number":0,"error":[],"text":""}\n']
)
def test_an_invalid_message_closes_the_channel(message: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Pending requests fail instead of waiting forever."""

    async def scenario() -> None:
        channel, other_end = socket.socketpair()
        channel = await IpcChannel.over(channel)
        waiting = asyncio.create_task(channel.ask("anything"))
        await asyncio.sleep(0)
        other_end.sendall(message)
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        await channel.close()
        other_end.close()
        assert "broke" in caplog.text

    asyncio.run(scenario())


def test_a_reset_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A killed worker resets the connection. The worker pool reports its end, so the channel logs nothing."""

    async def scenario() -> None:
        channel, other_end = socket.socketpair()
        channel = await IpcChannel.over(channel)
        waiting = asyncio.create_task(channel.ask("anything"))
        await asyncio.sleep(0)
        other_end.close()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 5)
        assert caplog.messages == []

    asyncio.run(scenario())
