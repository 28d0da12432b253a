"""Reads the messages of a call that sends a stream of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from service.grpc.connection.call import Call
from service.http.body import BodyReader
from service.memory.budget import MemoryBudget


async def messages(bodies: BodyReader, budget: MemoryBudget, call: Call) -> AsyncIterator[bytes]:
    """The messages of a call, as they arrive."""
    if (data := bodies.take_complete(call)) is not None:
        # the one message of a stream that has ended
        call.complete_body = None
        budget.release(call)
        yield data
    while await call.message_arrives():
        try:
            await call.begin_message(call.connection.loop.time() + bodies.seconds)
        except TimeoutError as error:
            raise bodies.too_slow() from error
        data = await bodies.read(call)
        budget.release(call)
        yield data
