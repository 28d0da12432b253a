"""One connection of a client: its requests answered in turn, errors in JSON, limits of time, a careful end.

Beside what `reception.py` names it leans on `transport`, `client`, `server_state` and the methods overridden
here, of uvicorn's HttpToolsProtocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import httptools
from uvicorn.config import Config

from service.http.connection_state import Connections, Rules
from service.http.flow import Flow
from service.http.no_request import NoRequest
from service.http.reception import Reception

log = logging.getLogger(__name__)

# how long a client may go on sending what nobody reads, before its connection is closed on it
LINGER_SECONDS = 2.0
# how long after there was no room for its request a client is not read from
PAUSE_SECONDS = 0.25


class Connection(Reception):
    """It keeps no timers: `tend` is to be called now and then, as often as its limits are to be exact."""

    flow: Flow

    def __init__(
        self, rules: Rules, state: Connections, config: Config, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(rules, state, config, loop)
        # what is said when all requests are answered; nothing is read as a request any more
        self._last_word: bytes | None = None
        # all is said, and what still comes is thrown away
        self._leaving = False

    # what the transport tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._ending = Ending(self.end, transport.is_closing, transport.write)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what waits for its run.

        A client that only stopped sending looks just like one that has closed, until something is sent to it:
        it is taken for gone, too, since what nobody waits for must not be run.
        """
        super().connection_lost(exc)
        if self._answering:
            self._current.disconnected = True
            self._current.message_event.set()
            course = self._course
            if course is not None:
                course.abandon()
        if self.state.when_lost is not None:
            self.state.when_lost()

    def data_received(self, data: bytes) -> None:
        if self._leaving or self._last_word is not None:
            return
        try:
            self.receive(data)
        except NoRequest as no_request:
            self._refuse(no_request)
        except httptools.HttpParserError as error:
            reason = error.__context__
            if not isinstance(reason, NoRequest):
                reason = NoRequest(400, "the request: expected HTTP/1.1, got something else")
            self._refuse(reason)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self.server_state.total_requests += 1
        if self._leaving or self.transport.is_closing():
            return
        waiting = self.pipeline.pop() if self.pipeline else None
        self.flow.resume_reading()
        if waiting is not None:
            self._start_asgi_task(*waiting)
        elif self._last_word is not None:
            self._end_with_word()
        elif getattr(self._course, "turned_away", False):
            # refusing a client that asks again at once costs those who are answered
            self.flow.pause_reading()
            self.loop.call_later(PAUSE_SECONDS, self.flow.resume_reading)

    # what an answer asks that goes the shorter way

    def end(self) -> None:
        """Close it after an answer, with care if the client may still be sending."""
        if self.pipeline or self._in_head or self._last_word is not None or self.cycle.more_body:
            self.say_goodbye()
        else:
            self.transport.close()

    # what the worker asks

    @property
    def busy(self) -> bool:
        """Whether a request is being received or answered."""
        return self._in_head or self._answering

    @property
    def owing(self) -> bool:
        """Whether a client would miss something if it ended now."""
        return self.busy or self.transport.get_write_buffer_size() > 0

    def tend(self, now: float) -> None:
        """Close it, or refuse what it sends, when it has taken too long."""
        passed = now - self._since
        if self.flow.stuck(now) > self.rules.idle_seconds:
            self.transport.abort()
        elif self._leaving:
            if passed > LINGER_SECONDS:
                self.transport.close()
        elif self._in_head:
            if passed > self.rules.header_seconds and not self.flow.read_paused:
                limit = f"{self.rules.header_seconds:g} seconds"
                self._refuse(NoRequest(408, f"the headers: expected all of them within {limit}, got some"))
        elif not self._answering and passed > (
            self.rules.idle_seconds if self._used else self.rules.header_seconds
        ):
            self.transport.close()

    def end_with_answer(self) -> None:
        """Let the answer to the last request that has arrived be the last."""
        if self._answering:
            self.cycle.keep_alive = False

    def end_if_silent(self, since: float) -> None:
        """Close it if nothing has come or gone since then, nor waits to be read."""
        if not self.owing and not self._leaving and self._since <= since and not self.flow.unread():
            self.transport.close()

    def say_goodbye(self) -> None:
        """Close it when the client has had time to read: data that nobody reads would reset it."""
        if self._leaving or self.transport.is_closing():
            return
        self._leaving, self._in_head = True, False
        self._since = self.loop.time()
        self.pipeline.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    # how it is done

    def _refuse(self, no_request: NoRequest) -> None:
        """Answer what never becomes a request after all that came before it, and end the connection so."""
        status, text = no_request.status, no_request.text
        count = self.state.when_refused
        request_id = None if count is None else count(status, text)
        extra = {"client": self.client, "id": request_id}
        log.info("a client was refused: %d, %s", status, text, extra=extra)
        self._last_word = no_request.answer(self.server_state.default_headers, request_id)
        if self._answering and not self._in_head and self.cycle.more_body:
            self._give_up_last()
        self._in_head = False
        if not self._answering:
            self._end_with_word()

    def _give_up_last(self) -> None:
        """Have no answer of the application to the request that arrived last: its body makes no sense."""
        if self.pipeline:
            self.pipeline.popleft()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._current = None
        if self.cycle.response_started:
            self._last_word = b""

    def _end_with_word(self) -> None:
        self.transport.write(self._last_word or b"")
        self.say_goodbye()


@dataclass(frozen=True, slots=True)
class Ending:
    """The transport as an application's answer sees it."""

    close: Callable[[], None]
    is_closing: Callable[[], bool]
    write: Callable[[bytes], None]
