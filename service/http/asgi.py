"""Adapters between `Request` and ASGI, one for each direction.

`AsgiEndpoint` answers a request with an ASGI application, such as a file of the dashboard. `AsgiRequest` is a
request that came through an ASGI server, so that the whole service also runs under uvicorn and the like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnpike.service.inference_types import Waiter
from turnpike.service.requests.request import ClientGoneError, Request, RequestHead
from turnpike.service.requests.response import Response

# where the scope of a request that our own server has passed to an application has that request
OUTER_REQUEST = "turnpike.request"


class AsgiEndpoint:
    """An endpoint that passes its requests on to an ASGI application."""

    def __init__(self, app: ASGIApp, *, head_as_get: bool = True) -> None:
        """`head_as_get` is for applications that know only GET."""
        self._app = app
        self._head_as_get = head_as_get

    async def __call__(self, request: Request) -> None:
        scope, receive, send = request.asgi()
        scope[OUTER_REQUEST] = request
        if self._head_as_get and scope.get("method") == "HEAD":
            # the request leaves out the body of its answer
            scope["method"] = "GET"
        try:
            if request.driver is None:
                await self._app(scope, receive, send)
            else:
                # Starlette and its libraries expect to run in an asyncio task
                request.in_task = True
                await asyncio.get_running_loop().create_task(_call(self._app, scope, receive, send))
        finally:
            request.in_task = False


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Call the application. It may return any awaitable, but a task needs a coroutine."""
    await app(scope, receive, send)


class AsgiRequest(Request):
    """A request that an ASGI server has read."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = list(scope["headers"])
        raw_path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        self.head = RequestHead(
            scope["method"],
            raw_path.decode("latin-1"),
            scope["path"],
            scope.get("query_string", b""),
            headers,
            http_version=scope.get("http_version", "1.1"),
            content_length=None,
        )
        content_length = self.head.fields.get(b"content-length", b"")
        if content_length.isdigit():
            self.head.content_length = int(content_length)
        client = scope.get("client")
        self.client = (client[0], client[1]) if client else None
        self._scope, self._receive, self._send = scope, receive, send
        # what it waits for, once its run is queued
        self._waiter: asyncio.Future[None] | None = None

    def waiter(self) -> Waiter:
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def abandon(self) -> None:
        """End the request because the client has gone: no model runs for it."""
        self.client_gone = True
        if not self.status and self._waiter is not None:
            self._waiter.cancel()

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        async with asyncio.timeout_at(deadline):
            message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    def respond(self, response: Response) -> Awaitable[None]:
        return self.respond_slowly(response)

    async def respond_slowly(self, response: Response) -> None:
        headers = [
            (name, value)
            for line in (response.lines + b"content-length: %d\r\n" % len(response.body)).splitlines()
            for name, _, value in [line.partition(b": ")]
        ]
        if response.close:
            headers.append((b"connection", b"close"))
        await self._start({"type": "http.response.start", "status": response.status, "headers": headers})
        await self._send_body({"type": "http.response.body", "body": response.body})

    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        async def send(message: Message) -> None:
            await (self._start if message["type"] == "http.response.start" else self._send_body)(message)

        return dict(self._scope), self._receive, send

    async def _start(self, message: Message) -> None:
        """Begin the answer, and add the headers that every answer has."""
        self.status = message["status"]
        lines = b"%bx-request-id: %b\r\nx-content-type-options: nosniff\r\n" % (
            self.extra_lines,
            self.id.encode(),
        )
        headers = [line.partition(b": ")[::2] for line in lines.splitlines()]
        message["headers"] = [*message.get("headers", ()), *headers]
        await self._send(message)

    async def _send_body(self, message: Message) -> None:
        """Send a part of the answer's body, which an answer to HEAD does not have."""
        await self._send({**message, "body": b""} if self.head.method == "HEAD" else message)
