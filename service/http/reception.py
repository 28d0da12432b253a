"""From the bytes of a connection to requests: uvicorn's protocol with limits on heads, and a shorter way.

It leans on what uvicorn's HttpToolsProtocol keeps and calls, which may change with its version: `parser`,
`flow`, `cycle`, `pipeline`, `headers`, `url`, `expect_100_continue`, `_start_asgi_task`, and the methods
overridden here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.http import head
from service.http.connection_state import Connections, Rules
from service.http.head_cache import UNIQUE, Way
from service.http.no_request import NoRequest

# bytes of a body that are still read once its request is answered, for the next request's sake
UNWANTED_BYTES = 1 << 20


class Reception(HttpToolsProtocol):
    """What the parser tells, and who answers it; when a connection ends is for `connection.py` to say."""

    def __init__(
        self, rules: Rules, state: Connections, config: Config, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.rules = rules
        self.state = state
        # since when it does what it does: it is silent, sends a head, or is leaving
        self._since = loop.time()
        self._used = False
        # the transport as an application's answer sees it
        self._ending: Any = None
        # the request that is being answered, or was last; `cycle` is the one that arrived last
        self._current: Any = None
        self._in_head = False
        self._head_bytes = 0
        self._head_began = False
        self._head_may_be_long = False
        # whether an answer that comes before the body is the last: too much of it may follow
        self._body_ends_it = False
        # the shorter way of a request, if all of it is in the piece at hand, and its body so far
        self._way: Way | None = None
        self._body = b""
        # that piece, where it began with a request
        self._piece = b""

    def receive(self, data: bytes) -> None:
        """Parse a piece of what the client sends; NoRequest or the parser's error says why that cannot be."""
        self._piece = data if self._may_begin() else b""
        if self._piece and (known := self.state.heads.find(data)) is not None:
            self._used = True
            self._since = self.loop.time()
            self._go(known.way(self), data[len(data) - known.size :])
            return
        # other requests and bodies may be in the same piece: only a long one has its heads measured
        self._head_may_be_long = self._head_bytes + len(data) > self.rules.max_header
        self._head_began = False
        self._parse(memoryview(data))
        if self._way is not None:
            self._go_ordinary_way()
        if self._in_head:
            # where a head begins in a piece is not known: of that piece, what is complete counts
            began = self._head_began
            self._head_bytes += head.size(self.url, self.headers) if began else len(data)
            self._expect_short_head(self._head_bytes)

    # what the parser tells

    def on_message_begin(self) -> None:
        # no scope is made yet: of most requests nobody wants one
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = self._used = self._head_began = True
        self._body_ends_it = False
        self._head_bytes = 0
        self._since = self.loop.time()

    def on_headers_complete(self) -> None:
        if self._head_may_be_long:
            self._expect_short_head(head.size(self.url, self.headers))
        if self.state.express is not None and self._is_free() and self._is_plain():
            headers = dict(self.headers)
            # of a header that is there twice the ordinary way knows what to make
            if len(headers) == len(self.headers):
                self._way = self.state.express(self.url, headers)
                if self._way is not None:
                    self._in_head = False
                    if not UNIQUE.isdisjoint(headers):
                        self._piece = b""
                    return
        self._begin()

    def _begin(self) -> None:
        """Have the application begin with its answer."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        length = head.length(self.parser.get_http_version(), self.headers)
        before = self.cycle
        super().on_headers_complete()
        if self.parser.should_upgrade():
            return
        self._in_head = False
        self.cycle.transport = self._ending
        if self.state.draining:
            if before is not None and not before.response_started:
                before.keep_alive = True
            self.cycle.keep_alive = False
        elif self.cycle.keep_alive and (
            length is None or length > UNWANTED_BYTES or self.expect_100_continue
        ):
            self._body_ends_it = True
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self._way is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        way = self._way
        if way is not None:
            body, self._body, self._way = self._body, b"", None
            if self._piece:
                self.state.heads.keep(self._piece, len(body), way)
            self._go(way(self), body)
            return
        super().on_message_complete()
        if self._body_ends_it and not self.cycle.response_started and not self.state.draining:
            self.cycle.keep_alive = True

    # how it is done

    @property
    def _answering(self) -> bool:
        return self._current is not None and not self._current.response_complete

    @property
    def _course(self) -> Any:
        """What the application calls the request that is being answered, or was last."""
        current = self._current
        return current if current.scope is None else current.scope.get("exchange")

    def _may_begin(self) -> bool:
        """Whether what comes is the beginning of a request, and nothing is in the way of its answer."""
        cycle = self.cycle
        return (
            (cycle is None or (cycle.response_complete and not cycle.more_body))
            and not self._in_head
            and self._is_free()
        )

    def _is_free(self) -> bool:
        """Whether an answer may be written at once."""
        return not (self._answering or self.flow.write_paused or self.state.draining)

    def _is_plain(self) -> bool:
        """Whether it is a POST that nothing is odd about."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def _go(self, express: Any, body: bytes) -> None:
        self.cycle = self._current = express
        express.begin(body)

    def _go_ordinary_way(self) -> None:
        """What is there of the body is not all of it."""
        body, self._body, self._way = self._body, b"", None
        self._begin()
        if body:
            super().on_body(body)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._current = cycle
        super()._start_asgi_task(cycle, app)

    def _should_upgrade(self) -> bool:
        # so that what is asked of this request is nothing, until it is read again
        return True

    def _parse(self, data: memoryview) -> None:
        """No other protocol is spoken here: a request that offers one is read again as if it had not.

        The parser has passed over its body, since that would be in the other protocol.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                data = data[stop.args[0] :]
                method = self.parser.get_method()
                if method == b"CONNECT":
                    text = "the method: expected one of a server, got CONNECT, which is for proxies"
                    raise NoRequest(400, text) from None
                lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
                lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))
            else:
                return

    def _expect_short_head(self, size: int) -> None:
        if size > self.rules.max_header:
            raise NoRequest(431, f"the headers: expected at most {self.rules.max_header} bytes, got more")
