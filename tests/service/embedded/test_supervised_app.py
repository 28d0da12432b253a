"""How requests of a user's application are served by the workers of `turnpike serve --app`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import turnpike
from tests.support.bundled_requests import BODY, NAME
from tests.support.in_process_servers import ask
from tests.support.in_process_worker import blocked_runs, until
from tests.support.supervised_app import supervised_app
from turnpike.service.embedded.supervised_app import receiving_within

INFER = f"/ml/v2/models/{NAME}/infer"


def head(method: str, path: str, *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: x", *lines, "", ""]).encode()


def last(method: str, path: str, *lines: str, version: str = "1.1") -> bytes:
    """A request after whose answer the connection is closed."""
    return head(method, path, "Connection: close", *lines, version=version)


def own_app() -> FastAPI:
    app = FastAPI()
    app.include_router(turnpike.router(), prefix="/ml")
    return app


async def leave(port: int, data: bytes, condition: Callable[[], bool]) -> None:
    """Send a request, and close the connection as soon as the condition holds."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await until(condition)
    writer.transport.abort()


def test_a_handler_runs_to_its_end_after_its_client_has_left() -> None:
    """It is told by a message, and its answer is dropped, as under uvicorn."""
    app = own_app()
    has_begun, may_end, events = asyncio.Event(), asyncio.Event(), list[str]()

    @app.post("/slow")
    async def slow(request: Request) -> Response:
        await request.body()
        has_begun.set()
        events.append((await request.receive())["type"])
        await asyncio.sleep(0)
        events.append("saved")
        return StreamingResponse(iter([b"never", b"read"]))

    @app.get("/waits")
    async def waits() -> Response:
        has_begun.set()
        await may_end.wait()
        events.append("waited")
        return Response("not read either")

    async def test() -> None:
        async with supervised_app(app) as (port, _, server):
            await leave(port, head("POST", "/slow", "Content-Length: 2") + b"{}", has_begun.is_set)
            await until(lambda: events == ["http.disconnect", "saved"])
            has_begun.clear()
            await leave(port, head("GET", "/waits"), has_begun.is_set)
            await until(lambda: not server.connections)
            may_end.set()
            await until(lambda: events[2:] == ["waited"])
            assert (await ask(port, last("GET", "/nothing"))).status == 404

    asyncio.run(test())


def test_several_tasks_may_wait_for_the_end_of_the_connection() -> None:
    app = own_app()
    has_begun, heard = asyncio.Event(), list[str]()

    @app.get("/two")
    async def two(request: Request) -> Response:
        await request.body()

        async def listen() -> None:
            heard.append((await request.receive())["type"])

        tasks = [asyncio.create_task(listen()) for _ in range(2)]
        await asyncio.sleep(0)
        has_begun.set()
        await asyncio.wait(tasks, timeout=5)
        for task in tasks:
            task.cancel()
        return Response()

    async def test() -> None:
        async with supervised_app(app) as (port, *_):
            await leave(port, head("GET", "/two"), has_begun.is_set)
            await until(lambda: heard == ["http.disconnect"] * 2)

    asyncio.run(test())


def test_no_model_runs_for_a_client_that_has_left(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the request goes through the application, whose middleware gets an answer all the same."""
    app = own_app()
    statuses: list[int] = []

    @app.middleware("http")
    async def note(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer = await call_next(request)
        statuses.append(answer.status_code)
        return answer

    async def test() -> None:
        async with supervised_app(app) as (port, worker, _):
            model = worker._application.registry.find(NAME)
            body = json.dumps(BODY).encode()
            length = f"Content-Length: {len(body)}"
            with blocked_runs(model) as run:
                first = asyncio.create_task(
                    ask(port, head("POST", INFER, "Connection: close", length) + body)
                )
                await until(run.has_begun.is_set)
                await leave(port, head("POST", INFER, length) + body, lambda: model.batcher.waiting == 1)
                await until(lambda: statuses == [499])
                run.release.set()
                assert (await first).status == 200
            assert model.counters.snapshot(0)["rows"] == 1

    asyncio.run(test())
    assert "No response returned" not in caplog.text


def test_headers_of_the_application_are_sent_once() -> None:
    """Its own take the place of ours."""
    app = own_app()

    @app.get("/own")
    def own() -> Response:
        headers = {
            "Date": "Thu, 01 Jan 1970 00:00:00 GMT",
            "X-Content-Type-Options": "mine",
            "Transfer-Encoding": "chunked",
        }
        return StreamingResponse(iter([b"some", b"thing"]), headers=headers)

    @app.middleware("http")
    async def note(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await call_next(request)

    async def test() -> None:
        async with supervised_app(app) as (port, *_):
            # `ask` fails for a header that comes twice
            answer = await ask(port, last("GET", "/own"))
            assert (answer.status, answer.body) == (200, b"something")
            assert answer.headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
            assert answer.headers["x-content-type-options"] == "mine"
            assert answer.headers["transfer-encoding"] == "chunked"
            ours = await ask(port, last("GET", "/ml/v2/models"))
            assert ours.headers["x-content-type-options"] == "nosniff"
            assert "date" in ours.headers

    asyncio.run(test())


def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    """The end of the connection is the end of the answer."""
    app = own_app()

    @app.get("/stream")
    def stream() -> Response:
        return StreamingResponse(iter([b"some", b"thing"]))

    async def test() -> None:
        async with supervised_app(app) as (port, *_):
            answer = await ask(port, head("GET", "/stream", "Connection: keep-alive", version="1.0"))
            assert answer.body == b"something"
            assert "transfer-encoding" not in answer.headers
            assert answer.headers["connection"] == "close"

    asyncio.run(test())


def test_a_request_for_a_websocket_is_told_that_there_are_none() -> None:
    app = own_app()

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()

    async def test() -> None:
        lines = (
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
        )
        async with supervised_app(app) as (port, *_):
            answer = await ask(port, head("GET", "/socket", "Connection: Upgrade, close", *lines))
            assert answer.status == 501
            assert "WebSocket: expected plain HTTP" in answer.json["error"]
            assert "uvicorn" in answer.json["error"]

    asyncio.run(test())


def test_a_body_that_takes_too_long_is_refused() -> None:
    """As for the routes of the service, in the form of the application's errors."""
    app = FastAPI()
    app.include_router(turnpike.router(body_seconds=0.05), prefix="/ml")

    @app.post("/upload")
    async def upload(request: Request) -> dict[str, int]:
        return {"length": len(await request.body())}

    @app.post("/parsed")
    async def parsed(body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def test() -> None:
        async with supervised_app(app) as (port, *_):
            for path in ("/upload", "/parsed"):
                # the rest never comes, and the connection ends
                answer = await ask(port, head("POST", path, "Content-Length: 9") + b'{"a"')
                assert answer.status == 408
                assert answer.json == {
                    "detail": "body: expected all of it within 0.05 seconds (--body-seconds), got only a part"
                }

    asyncio.run(test())


def test_the_time_of_the_application_does_not_count_as_that_of_the_body() -> None:
    """A handler may store each part before it receives the next one."""

    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"part", "more_body": True}

    async def test() -> None:
        loop = asyncio.get_running_loop()
        receive_in_time = receiving_within(10, receive)
        await receive_in_time()
        later = loop.time() + 60
        with patch.object(loop, "time", lambda: later):
            assert (await receive_in_time())["body"] == b"part"

    asyncio.run(test())


def test_an_application_whose_lifespan_is_cancelled_does_not_start() -> None:
    """And keeps nobody waiting."""
    inner = own_app()

    class Cancelled:
        """Its lifespan is cancelled, as by a library that ends its task group."""

        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await receive()
                raise asyncio.CancelledError
            await self.app(scope, receive, send)

    async def test() -> None:
        async with asyncio.timeout(10), supervised_app(Cancelled(inner)) as (port, *_):
            assert (await ask(port, last("GET", "/nothing"))).status == 404

    asyncio.run(test())
