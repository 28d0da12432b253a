"""Reads the message of a call, or those of a call that sends a stream of them."""

from __future__ import annotations

import asyncio

from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.call import Call
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.body import BodyReader


async def read_message(bodies: BodyReader, call: Call) -> bytes:
    """The one message of a call. Its bytes count in the memory budget until they are released."""
    data = bodies.take_complete(call)
    if data is not None:
        return data
    deadline = asyncio.get_running_loop().time() + bodies.seconds
    try:
        if not await call.begin_message(deadline):
            raise RequestError("body: expected one message, got none")
        data = await bodies.read(call)
        if await call.begin_message(deadline):
            raise RequestError("body: expected one message, got another after it")
    except TimeoutError as error:
        raise bodies.too_slow() from error
    return data


async def next_message(bodies: BodyReader, budget: MemoryBudget, call: Call) -> bytes | None:
    """The next message of a stream, whose bytes no longer count in the budget; None after the last one."""
    data = bodies.take_complete(call)
    if data is not None:
        # the one message of a stream that has ended
        call.complete_body = None
    else:
        if not await call.message_arrives():
            return None
        try:
            await call.begin_message(call.connection.loop.time() + bodies.seconds)
        except TimeoutError as error:
            raise bodies.too_slow() from error
        data = await bodies.read(call)
    budget.release(call)
    return data
