"""A request without a connection, for tests of endpoints and of the middleware."""

from __future__ import annotations

import asyncio
from typing import Any

from turnpike.service.requests.request import Headers, Request, RequestHead
from turnpike.service.requests.response import Response


class FakeRequest(Request):
    """Receives its body in these parts, and keeps its response."""

    def __init__(
        self,
        method: str = "GET",
        path: str = "/",
        *parts: bytes,
        headers: Headers | None = None,
        query: bytes = b"",
        content_length: int | None = None,
    ) -> None:
        self.head = RequestHead(method, path, path, query, headers or [], content_length=content_length)
        self.client = ("127.0.0.1", 5000)
        self.parts = list(parts)
        self.complete_body = parts[0] if len(parts) == 1 else None
        self.response: Response | None = None

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        if not self.parts:
            async with asyncio.timeout_at(deadline):
                await asyncio.Event().wait()
        return self.parts.pop(0), bool(self.parts)

    def respond(self, response: Response) -> None:
        self.status = response.status
        self.response = response

    async def respond_slowly(self, response: Response) -> None:
        self.respond(response)

    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        raise AssertionError("this request has no ASGI application")
