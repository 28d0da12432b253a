"""A client of HTTP/1.1 that posts to the receiver of payload events, on connections that stay open."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import httptools

from turnpike.common.distribution import VERSION

# bytes of a payload that are written at once: TLS encrypts all of them before anything else happens
SLICE_BYTES = 1 << 18
DEFAULT_PORTS = {"http": 80, "https": 443}


class SinkError(Exception):
    """The receiver did not take a message. `is_down` says whether it may take none at present."""

    def __init__(self, message: str, *, is_down: bool = True) -> None:
        super().__init__(message)
        self.is_down = is_down


class EventSink:
    """Posts messages to a URL. Several may be on their way, each on a connection of its own.

    Args:
        url: Where to post to.
        seconds: The time for each message, until it is answered.
    """

    def __init__(self, url: str, seconds: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port or DEFAULT_PORTS[parts.scheme]
        # now, since reading the certificates takes some milliseconds
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._first_lines = (
            f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: turnpike/{VERSION}\r\n"
        ).encode()
        self._seconds = seconds
        self._idle: list[_Connection] = []

    async def post(self, lines: bytes, body: bytes) -> None:
        """Send a body with these header lines. Raises SinkError."""
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._first_lines, lines, len(body))
        try:
            async with asyncio.timeout(self._seconds):
                status = await self._answer(head, body)
        except TimeoutError as error:
            raise SinkError(f"expected an answer within {self._seconds:g} seconds, got none") from error
        except (OSError, UnicodeError, httptools.HttpParserError) as error:
            raise SinkError(str(error) or type(error).__name__) from error
        if not 200 <= status < 300:
            raise SinkError(f"expected a status of 2xx, got {status}", is_down=status >= 500)

    def close(self) -> None:
        """Close the connections that are open and not in use."""
        while self._idle:
            self._idle.pop().transport.abort()

    async def _answer(self, head: bytes, body: bytes) -> int:
        """The status of the answer to a message."""
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._exchange(connection, head, body)
            except ConnectionError:
                # the receiver closed a connection that it had kept open
                pass
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return await self._exchange(connection, head, body)

    async def _exchange(self, connection: _Connection, head: bytes, body: bytes) -> int:
        is_kept = False
        try:
            status, is_kept = await connection.exchange(head, body)
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.transport.abort()
        return status


class _Connection(asyncio.Protocol):
    """A connection to the receiver. Its methods `on_…` are called by httptools."""

    transport: asyncio.Transport
    _is_lost = False
    # the status of the answer and whether the connection can be used again, once the answer is complete
    _answer: asyncio.Future[tuple[int, bool]] | None = None
    # done when the transport can take more
    _writable: asyncio.Future[None] | None = None

    async def exchange(self, head: bytes, body: bytes) -> tuple[int, bool]:
        """Send a request; returns the status of the answer, and whether the connection can be used again."""
        if self._is_lost:
            raise ConnectionResetError
        self._status = 0
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        try:
            self.transport.write(head + body[:SLICE_BYTES])
            for start in range(SLICE_BYTES, len(body), SLICE_BYTES):
                if self._writable is not None:
                    await self._writable
                self.transport.write(body[start : start + SLICE_BYTES])
            return await self._answer
        finally:
            self._answer = None
            # it refers back to this object
            del self._parser

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # nothing was asked
            self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self.resume_writing()
        if self._answer is not None and not self._answer.done() and self._status and exc is None:
            # the end of the connection is the end of the answer
            self._answer.set_result((self._status, False))
        self._fail(exc or ConnectionResetError("the connection was closed before the answer"))

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ---- called by the parser

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # others, such as 100, come before the answer
        if status >= 200:
            self._status = status

    def on_message_complete(self) -> None:
        if self._status and self._answer is not None and not self._answer.done():
            # the parser knows only now whether the connection stays open
            self._answer.set_result((self._status, self._parser.should_keep_alive()))
