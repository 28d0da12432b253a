"""Clients that send request bodies in parts, and readers with a budget of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Message

from tests.support.fake_request import FakeRequest
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.request import ClientGoneError, RequestHead

GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Client(FakeRequest):
    """Sends its messages in order, each after `wait` seconds, then nothing more."""

    def __init__(self, *messages: Message, wait: float | None = None) -> None:
        super().__init__("POST")
        self.messages, self.wait = list(messages), wait

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        async with asyncio.timeout_at(deadline):
            if self.wait is not None:
                await asyncio.sleep(self.wait)
            if not self.messages:
                await asyncio.Event().wait()
        message = self.messages.pop(0)
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    def sending(self, encoding: str | None = None, length: int | None = None) -> Client:
        """The same client with these headers."""
        headers = [] if encoding is None else [(b"content-encoding", encoding.encode())]
        self.head = RequestHead("POST", "/", "/", b"", headers, content_length=length)
        return self


def body_reader(capacity: int, **limits: Any) -> BodyReader:
    """A reader with a memory budget of its own."""
    return BodyReader(MemoryBudget(capacity), **limits)


@contextlib.asynccontextmanager
async def reading(reader: BodyReader, client: Client) -> AsyncIterator[bytes]:
    """Read the body; its bytes count in the budget until the end of the block."""
    try:
        yield await reader.read(client)
    finally:
        reader.budget.release(client)


def read(client: Client, reader: BodyReader | None = None, **headers: Any) -> bytes:
    """Read a body, and check that the budget holds nothing afterwards, also after an error."""
    reader = reader or body_reader(1000, limit=100, seconds=5)

    async def scene() -> bytes:
        async with reading(reader, client.sending(**headers)) as body:
            assert reader.budget.bytes == len(body)
            return body

    try:
        return asyncio.run(scene())
    finally:
        assert reader.budget.bytes == 0
