"""One connection of a client: uvicorn's protocol with limits on headers, errors in JSON, and a careful end.

It leans on what uvicorn's HttpToolsProtocol keeps and calls, which may change with its version: `parser`,
`transport`, `flow`, `cycle`, `pipeline`, `headers`, `url`, `expect_100_continue`, `client`, `server_state`,
`_start_asgi_task`, and the methods overridden here.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import http
import logging
import termios
from typing import Any

import httptools
import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.connections import Connections, Rules

log = logging.getLogger(__name__)

# how long a client may go on sending what nobody reads, before its connection is closed on it
LINGER_SECONDS = 2.0
# how long after there was no room for its request a client is not read from
PAUSE_SECONDS = 0.25
# bytes of a body that are still read once its request is answered, for the next request's sake
UNWANTED_BYTES = 1 << 20


class HeadTooLong(Exception):  # noqa: N818, it is no error of ours
    """Raised through the parser, which stops at it."""


class Connection(HttpToolsProtocol):
    """It keeps no timers: `tend` is to be called now and then, as often as its limits are to be exact."""

    def __init__(
        self, rules: Rules, state: Connections, config: Config, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.rules = rules
        self.state = state
        # since when it does what it does: it is silent, sends a head, or is leaving
        self._since = self._flowed = loop.time()
        self._unsent = 0
        self._used = False
        self._leaving = False
        self._in_head = False
        self._head_bytes = 0
        self._head_is_long = False
        self._unwanted = 0

    # what the transport tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._ending = Ending(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        exchange: Any = self.cycle.scope.get("exchange") if self._answering else None
        if exchange is not None:
            exchange.abandon()
        if self.state.when_lost is not None:
            self.state.when_lost()

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        # a body may begin in the same piece, so a long one is measured when its head has ended
        self._head_is_long = self._head_bytes + len(data) > self.rules.max_header
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            self._decline_upgrade(data[stop.args[0] :])
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, HeadTooLong):
                self._refuse_head()
            else:
                self._refuse(400, "the request: expected HTTP/1.1, got something else")
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_is_long:
                self._refuse_head()

    # what the parser tells

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._used = True
        self._head_bytes = self._unwanted = 0
        self._since = self.loop.time()

    def on_headers_complete(self) -> None:
        if self._head_is_long and self._head_size() > self.rules.max_header:
            raise HeadTooLong
        before = self.cycle
        super().on_headers_complete()
        if self.parser.should_upgrade():
            return
        self._in_head = False
        self.cycle.transport = self._ending  # type: ignore[assignment]
        if self.state.draining:
            if before is not None and not before.response_started:
                before.keep_alive = True
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self.cycle.response_complete:
            super().on_body(body)
            return
        self._unwanted += len(body)
        if self._unwanted > UNWANTED_BYTES:
            self.say_goodbye()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self.server_state.total_requests += 1
        if self._leaving or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.expect_100_continue and self.cycle.more_body:
            # the client was not asked for its body: whether it sends one is not known
            self.say_goodbye()
        elif getattr(self.cycle.scope.get("exchange"), "turned_away", False):
            # refusing a client that asks again at once costs those who are answered
            self.flow.pause_reading()
            self.loop.call_later(PAUSE_SECONDS, self.flow.resume_reading)

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
        if self._is_stuck(now):
            self.transport.abort()
        elif self._leaving:
            if passed > LINGER_SECONDS and (not self._answering or self.cycle.disconnected):
                self.transport.close()
        elif self._in_head:
            if passed > self.rules.header_seconds and not self.flow.read_paused:
                limit = f"{self.rules.header_seconds:g} seconds"
                self._refuse(408, f"the headers: expected all of them within {limit}, got some")
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
        if not self.owing and not self._leaving and self._since <= since and not self._unread():
            self.transport.close()

    def say_goodbye(self) -> None:
        """Close it when the client has had time to read: data that nobody reads would reset it."""
        if self._leaving or self.transport.is_closing():
            return
        self._leave()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    # how it is done

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _should_upgrade(self) -> bool:
        # so that what is asked of this request is nothing, until it is read again
        return True

    def _decline_upgrade(self, rest: bytes) -> None:
        """No other protocol is spoken here: read the request again as if none had been offered.

        The parser has passed over its body, since that would be in the other protocol.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, "the method: expected one of a server, got CONNECT, which is for proxies")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _refuse_head(self) -> None:
        self._refuse(431, f"the headers: expected at most {self.rules.max_header} bytes, got more")

    def _refuse(self, status: int, text: str) -> None:
        """Answer what never becomes a request, and end the connection with that.

        Requests before it are answered first; then the connection closes without a word on this one.
        """
        log.info("a client was refused: %d, %s", status, text, extra={"client": self.client})
        if self._answering:
            own_body = not self._in_head and self.cycle.more_body and not self.pipeline
            if not own_body or self.cycle.response_started:
                self.cycle.keep_alive = False
                self._leave()
                self._give_up_body()
                return
            # it is the request in hand whose body makes no sense: the application need not answer it
            self._give_up_body()
        body = orjson.dumps({"error": text})
        lines = [b"HTTP/1.1 %d %b" % (status, http.HTTPStatus(status).phrase.encode())]
        lines += [b"%b: %b" % header for header in self.server_state.default_headers]
        lines += [b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close"]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.say_goodbye()

    def _give_up_body(self) -> None:
        """Tell the application that the body it may wait for does not come."""
        if self.cycle.more_body:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _leave(self) -> None:
        self._leaving, self._in_head = True, False
        self._since = self.loop.time()

    def _head_size(self) -> int:
        # beside each name and value there are a colon, a space and the end of the line
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has read nothing of its answer for as long as a connection may be idle."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent:
            self._unsent, self._flowed = unsent, now
        return now - self._flowed > self.rules.idle_seconds

    def _unread(self) -> bool:
        size = array.array("i", [0])
        fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
        return bool(size[0])


class Ending:
    """The transport as an application's answer sees it, closed with care while a request still arrives."""

    __slots__ = ("_connection", "is_closing", "write")

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        connection = self._connection
        if connection.cycle.more_body:
            connection.say_goodbye()
        else:
            connection.transport.close()
