"""The adapters between a Request and ASGI, in both directions."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from tests.support.fake_request import FakeRequest
from turnpike.service.http.asgi import AsgiEndpoint, AsgiRequest
from turnpike.service.requests.driver import Driver, DriverWaiter
from turnpike.service.requests.request import ClientGoneError, Request
from turnpike.service.requests.response import Response


class AsgiFakeRequest(FakeRequest):
    """A request with a scope, for applications that neither receive nor send."""

    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        return {"type": "http"}, None, None


def drive(request: Request, endpoint: AsgiEndpoint) -> list[BaseException | None]:
    """Start the endpoint as a connection does. The list receives the exception that it ends with, or None."""
    ends: list[BaseException | None] = []
    request.driver = Driver(endpoint(request), ends.append)
    request.driver.step()
    return ends


async def wait_for_end(ends: list[BaseException | None]) -> BaseException | None:
    async with asyncio.timeout(5):
        while not ends:
            await asyncio.sleep(0)
    return ends[0]


def test_an_application_runs_in_a_task() -> None:
    """Frameworks ask for the current task. A task can await only futures, so the waiter must be one."""
    request = AsgiFakeRequest()
    inside: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        inside.extend([asyncio.current_task(), request.in_task, request.waiter()])

    async def test() -> None:
        assert await wait_for_end(drive(request, AsgiEndpoint(app))) is None
        task, in_task, waiter = inside
        assert isinstance(task, asyncio.Task)
        assert task is not asyncio.current_task()
        assert in_task
        assert isinstance(waiter, asyncio.Future)
        assert not request.in_task
        assert isinstance(request.waiter(), DriverWaiter)

    asyncio.run(test())


def test_a_request_without_a_driver_needs_no_task_of_its_own() -> None:
    tasks: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tasks.append(asyncio.current_task())

    async def test() -> None:
        request = AsgiFakeRequest()
        await AsgiEndpoint(app)(request)
        assert tasks == [asyncio.current_task()]
        assert request.route_path == "unknown"

    asyncio.run(test())


@pytest.mark.parametrize("driven", [False, True])
def test_an_error_of_the_application_reaches_the_middleware(driven: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("broken")

    async def test() -> None:
        request = AsgiFakeRequest()
        if driven:
            assert isinstance(await wait_for_end(drive(request, AsgiEndpoint(app))), KeyError)
        else:
            with pytest.raises(KeyError):
                await AsgiEndpoint(app)(request)
        assert not request.in_task

    asyncio.run(test())


@pytest.mark.parametrize("started", [False, True])
def test_a_cancelled_request_cancels_the_application(started: bool) -> None:
    """If its task has not started, no coroutine may be left that was never awaited."""
    steps: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        steps.append("started")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    async def test() -> None:
        request = AsgiFakeRequest()
        ends = drive(request, AsgiEndpoint(app))
        if started:
            await asyncio.sleep(0)
        assert request.driver is not None
        request.driver.cancel()
        assert isinstance(await wait_for_end(ends), asyncio.CancelledError)
        assert steps == (["started", "cancelled"] if started else [])
        assert not request.in_task

    with warnings.catch_warnings(record=True) as recorded_warnings:
        warnings.simplefilter("always")
        asyncio.run(test())
        gc.collect()
    assert [str(warning.message) for warning in recorded_warnings] == []


class AsgiClient:
    """An ASGI server with one request: it provides the messages and records what is sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.sent: list[dict[str, Any]] = []

    def request(self, headers: dict[str, str] | None = None, **scope: Any) -> AsgiRequest:
        full_scope = {
            "type": "http",
            "method": "POST",
            "path": "/a b",
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            **scope,
        }
        request = AsgiRequest(full_scope, self._receive, self._send)
        request.id = "the-id"
        return request

    async def _receive(self) -> Any:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


def test_a_scope_becomes_a_head() -> None:
    """Servers may leave out everything that ASGI declares optional."""
    bare = AsgiClient().request()
    assert (bare.head.path, bare.head.raw_path, bare.head.query) == ("/a b", "/a%20b", b"")
    assert (bare.head.content_length, bare.client) == (None, None)
    full = AsgiClient().request(
        {"content-length": "17", "x": "1"}, raw_path=b"/a%20b", query_string=b"c=d", client=["::1", 80]
    )
    assert (full.head.path, full.head.raw_path, full.head.query) == ("/a b", "/a%20b", b"c=d")
    assert (full.head.content_length, full.client) == (17, ("::1", 80))
    assert full.head.fields[b"x"] == b"1"
    assert AsgiClient().request({"content-length": "-1"}).head.content_length is None


def test_an_answer_to_head_has_no_body() -> None:
    """The application is asked for GET. Not every ASGI server removes the body."""
    methods = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        methods.append(scope["method"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ab"})

    async def test() -> None:
        for endpoint in (AsgiEndpoint(app), None):
            client = AsgiClient()
            request = client.request(method="HEAD")
            if endpoint is None:
                await request.respond(Response(b"ab"))
            else:
                await endpoint(request)
            start, body = client.sent
            assert (b"content-length", b"2") in start["headers"]
            assert body["body"] == b""
        assert methods == ["GET"]

    asyncio.run(test())


def test_a_body_is_received_in_parts() -> None:
    async def test() -> None:
        parts = [{"type": "http.request", "body": b"ab", "more_body": True}, {"type": "http.request"}]
        request = AsgiClient(*parts).request()
        assert await request.next_chunk() == (b"ab", True)
        assert await request.next_chunk() == (b"", False)
        with pytest.raises(TimeoutError):
            await request.next_chunk(asyncio.get_running_loop().time() + 0.001)
        with pytest.raises(ClientGoneError):
            await AsgiClient({"type": "http.disconnect"}).request().next_chunk()

    asyncio.run(test())


@pytest.mark.parametrize("close", [False, True])
def test_a_response_is_sent_as_two_messages(close: bool) -> None:
    async def test() -> None:
        client = AsgiClient()
        request = client.request()
        request.extra_lines = b"vary: origin\r\n"
        sending = request.respond(Response(b"body", b"content-type: text/plain\r\n", 404, close=close))
        assert sending is not None
        await sending
        start, body = client.sent
        assert start["status"] == request.status == 404
        assert start["headers"] == [
            (b"content-type", b"text/plain"),
            (b"content-length", b"4"),
            *([(b"connection", b"close")] if close else []),
            (b"vary", b"origin"),
            (b"x-request-id", b"the-id"),
            (b"x-content-type-options", b"nosniff"),
        ]
        assert body == {"type": "http.response.body", "body": b"body"}

    asyncio.run(test())


def test_an_application_behind_the_adapter_gets_the_headers_of_every_answer() -> None:
    async def test() -> None:
        client = AsgiClient()
        request = client.request()
        scope, receive, send = request.asgi()
        scope["new"] = 1
        assert "new" not in request.asgi()[0]
        client.messages.append({"type": "http.request"})
        assert await receive() == {"type": "http.request"}
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})
        assert request.status == 204
        assert client.sent[0]["headers"] == [
            (b"x-request-id", b"the-id"),
            (b"x-content-type-options", b"nosniff"),
        ]
        assert client.sent[1] == {"type": "http.response.body"}

    asyncio.run(test())
