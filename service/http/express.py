"""A request that came whole, to a route that runs a model: answered as any other, by a shorter way.

It needs neither a task nor a scope: its endpoint's steps are taken here, as what they wait for is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from service.api.endpoint import MUCH, content_headers, respond
from service.api.inference import Content
from service.errors import RequestError
from service.http.request_context import NOSNIFF, Course

if TYPE_CHECKING:
    from service.http.door import Door
    from service.http.lane import Lane

log = logging.getLogger(__name__)

Headers = Iterable[tuple[bytes, bytes]]

NOSNIFF_LINES = b"\r\n%b: %b\r\n\r\n" % NOSNIFF
# of errors of routing a request here has none
REFUSED: dict[str, Any] = {"method": "POST"}


class Carrier(Protocol):
    """The connection that a request came over."""

    client: Any
    flow: Any
    loop: asyncio.AbstractEventLoop
    server_state: Any
    tasks: set[Any]
    transport: Any

    def end(self) -> None:
        """Close it with care: this was its last answer."""

    def on_response_complete(self) -> None:
        """Go on to the next request."""


class Silent:
    """An event that nobody waits for."""

    def set(self) -> None:
        """Wake nobody."""


class Signal:
    """A future of one express request, which goes on the moment that it is done."""

    __slots__ = ("_cancelled", "_done", "_express")

    def __init__(self, express: Express) -> None:
        self._express = express
        self._done = self._cancelled = False

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            yield self
        if self._cancelled:
            raise asyncio.CancelledError

    def done(self) -> bool:
        return self._done

    def set_result(self, result: None, /) -> None:
        self._done = True
        self._express.go_on(self)

    def cancel(self) -> None:
        """Have the request go on with a CancelledError, in a turn of its own as with any future."""
        if not self._done:
            self._done = self._cancelled = True
            asyncio.get_running_loop().call_soon(self._express.go_on, self)


class Express(Course):
    """It stands where the server has its cycle of request and response, and has some of that one's names."""

    __slots__ = (
        "_carrier",
        "_door",
        "_headers",
        "_lane",
        "_steps",
        "_waits_for",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
    )
    more_body = False
    scope = None
    message_event = Silent()

    def __init__(self, door: Door, lane: Lane, headers: Mapping[bytes, bytes], carrier: Carrier) -> None:
        super().__init__(door.ids, headers.get(b"x-request-id"), headers.get(b"traceparent"))
        self._door, self._lane, self._headers, self._carrier = door, lane, headers, carrier
        self._steps: Coroutine[Any, Any, Content] | None = None
        self._waits_for: Signal | asyncio.Future[Any] | None = None
        self.keep_alive = True
        self.disconnected = self.response_started = self.response_complete = False

    def begin(self, body: bytes) -> None:
        """Go as far as it goes without waiting."""
        self._door.meter.in_flight += 1
        try:
            self._lane.guarded.check(self._headers.items())
        except RequestError as error:
            self._refuse(error)
            return
        self._steps = self._lane.steps(self, self._headers, body)
        self._step()

    def abandon(self) -> None:
        """Told by the connection when its client has gone: what still waits for its run is not run."""
        if not self.status and not self.abandoned and self._waits_for is not None:
            self.abandoned = True
            self._waits_for.cancel()

    def future(self) -> Signal:
        return Signal(self)

    def go_on(self, signal: Signal) -> None:
        """Told by what was waited for; others wait for theirs beside it, whom no error here may touch."""
        if self._waits_for is signal:
            self._waits_for = None
            try:
                self._step()
            except Exception:
                log.exception("request %s failed", self.id)
                self._carrier.transport.abort()

    def _step(self, _: object = None) -> None:
        """What a task would do: go on until something is to be waited for."""
        try:
            waits_for = self._steps.send(None)  # type: ignore[union-attr]
        except StopIteration as end:
            self._answer(*end.value)
        except asyncio.CancelledError:
            self._over()
        except Exception as error:  # whatever failed, a caller is answered
            self._refuse(error)
        else:
            self._waits_for = waits_for
            if type(waits_for) is not Signal:
                # as tasks say to a future that they have understood
                waits_for._asyncio_future_blocking = False
                waits_for.add_done_callback(self._step)

    def _answer(self, content: bytes, length: int | None) -> None:
        headers = content_headers(content, length)
        if len(content) < MUCH:
            self._write(self._head(200, headers) + content)
            self._over()
            return
        carrier = self._carrier
        task = carrier.loop.create_task(self._answer_much(content, length))
        carrier.tasks.add(task)
        task.add_done_callback(carrier.tasks.discard)

    async def _answer_much(self, content: bytes, length: int | None) -> None:
        """No faster than the client reads."""
        try:
            await respond(self._send, content, length, self._lane.held)
        except asyncio.CancelledError:
            self._over()
            raise
        except Exception as error:  # such as that there is no room to hold it
            self._refuse(error)
        else:
            self._over()

    async def _send(self, message: Message) -> None:
        """As an application's answer is sent, in parts."""
        flow = self._carrier.flow
        if flow.write_paused and not self.disconnected:
            await flow.drain()
        if message["type"] == "http.response.start":
            self._write(self._head(message["status"], message["headers"]))
        elif message["body"]:
            self._write(message["body"])

    def _refuse(self, error: Exception) -> None:
        refused = self._door.refuse(error, self, REFUSED)
        if not self.status:
            self._write(self._head(refused.status, refused.own_headers) + refused.body)
        else:
            # an answer that has begun ends where it is, and nothing can follow it
            self.keep_alive = False
        self._over()

    def _head(self, status: int, headers: Headers) -> bytes:
        """Status and headers of the answer; those that come from outside are known to be sane."""
        self.status = status
        self.response_started = True
        lines = [STATUS_LINE[status]]
        for name, value in (*self._carrier.server_state.default_headers, *headers):
            if name == b"connection":
                self.keep_alive = False
            else:
                lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"x-request-id: ", self.id.encode(), NOSNIFF_LINES)
        return b"".join(lines)

    def _write(self, data: bytes) -> None:
        if not self.disconnected:
            self._carrier.transport.write(data)

    def _over(self) -> None:
        """The last step, whatever came before it."""
        carrier = self._carrier
        self.response_started = self.response_complete = True
        if not self.keep_alive:
            carrier.end()
        carrier.on_response_complete()
        self._door.meter.in_flight -= 1
        self._door.done(self, self._lane.route, "POST", self._lane.path, carrier.client)
