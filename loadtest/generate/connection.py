"""A keep-alive HTTP connection that sends requests, which are already bytes, and reads their answers.

Everything happens in callbacks of gevent's event loop. A greenlet per request would take more CPU time than
all the rest of sending it, and the load generator often shares its CPUs with the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import gevent
from gevent.monkey import get_original
from geventhttpclient.response import HTTPParseError, HTTPResponse

from turnpike.loadtest.generate.known_answer import KnownAnswer
from turnpike.loadtest.generate.tls_stream import READ_BYTES, TlsStream

# flags of gevent's watchers of sockets
READABLE, WRITABLE = 1, 2
NOTHING = memoryview(b"")
LOST = "connection lost"
# the socket of the standard library, which locust replaces by one that waits for gevent's event loop
PlainSocket: Any = get_original("socket", "socket")


class NoAnswerError(Exception):
    """A request that got no complete answer. Faults are counted by the message, so it is one of a few."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An HTTP answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    whole: bool  # whether it arrived in one piece


# called with the connection and the outcome of its request: a size in bytes for the known answer, any other
# answer, or an error
OnEnd = Callable[["Connection", "int | RawAnswer | NoAnswerError"], None]


class Connection:
    """Has one request at a time, from `send` until `on_end` is called."""

    __slots__ = ("_known", "_on_end", "_parser", "_reader", "_socket", "_tls", "_unsent", "_writer", "usable")

    def __init__(self, socket: Any, tls: TlsStream | None) -> None:
        """Take a connected socket, which is a `PlainSocket`."""
        self._socket, self._tls = socket, tls
        socket.setblocking(False)
        self._on_end: OnEnd | None = None
        self._known: KnownAnswer | None = None
        self._parser: AnswerParser | None = None
        self._unsent = NOTHING
        self._writer: Any = None
        self.usable = True  # whether it may have another request
        self._reader: Any = gevent.get_hub().loop.io(socket.fileno(), READABLE)
        self._reader.start(self._on_readable)

    def send(self, request: bytes, known: KnownAnswer | None, on_end: OnEnd) -> None:
        """Send a request; `known` is the answer that is most likely."""
        self._on_end, self._known = on_end, known
        self._write(request if self._tls is None else self._tls.encrypt(request))

    def close(self) -> None:
        """Close the connection; a request that it has gets no outcome."""
        self.usable, self._on_end = False, None
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        self._socket.close()

    def _write(self, data: bytes | memoryview) -> None:
        """Send data, after what could not be sent yet; the rest goes out when the socket takes more."""
        if self._unsent:
            data = b"".join((self._unsent, data))
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # the server has closed the connection, which the reader notices
            return
        if sent == len(data) and not self._unsent:
            return
        self._unsent = memoryview(data)[sent:]
        if self._writer is None:
            self._writer = gevent.get_hub().loop.io(self._socket.fileno(), WRITABLE)
        if self._unsent:
            self._writer.start(self._on_writable)
        else:
            self._writer.stop()

    def _on_writable(self) -> None:
        unsent, self._unsent = self._unsent, NOTHING
        self._write(unsent)
        if not self._unsent:
            self._writer.stop()

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        closed = not data
        if self._tls is not None:
            data, closed = self._tls.decrypt(data)
            if reply := self._tls.encrypt(b""):
                self._write(reply)
            if not data and not closed:
                return
        if self._on_end is None:
            # an idle connection: the server closes it, or sends something that nobody asked for
            self.close()
        elif self._parser is None and self._known is not None and self._known.is_answer(data):
            self.usable = not closed and not self._unsent
            self._end(len(data))
        else:
            self._parse(data, closed)

    def _parse(self, data: bytes, closed: bool) -> None:
        """Read an answer, or a part of it, with a parser that knows all of HTTP."""
        whole = self._parser is None
        parser = self._parser = self._parser or AnswerParser("POST")
        try:
            if data:
                parser.feed(data)
            if closed and not parser.is_complete:
                # this ends a body without a length
                parser.feed(b"")
        except HTTPParseError:
            self.usable = False
            self._end(NoAnswerError(LOST if closed else "the answer is not HTTP"))
            return
        if parser.is_complete:
            self.usable = not (closed or parser.should_close() or self._unsent)
            headers = {name.lower(): value for name, value in parser.items()}
            self._end(RawAnswer(parser.status_code, headers, bytes(parser.body), whole))
        elif closed:
            self.usable = False
            self._end(NoAnswerError(LOST))

    def _end(self, outcome: int | RawAnswer | NoAnswerError) -> None:
        on_end, self._on_end, self._known, self._parser = self._on_end, None, None, None
        if on_end is not None:
            on_end(self, outcome)


class AnswerParser(HTTPResponse):
    """Parses one answer."""

    def __init__(self, method: str) -> None:
        super().__init__(method)
        self.body = bytearray()

    @property
    def is_complete(self) -> bool:
        """Whether the final answer is complete; an answer with status 1xx comes before it."""
        return bool(self.message_complete) and self.get_code() >= 200

    def _on_body(self, part: bytearray) -> None:
        self.body += part


def compose_request(url: str, path: str, data: bytes, headers: Mapping[str, str]) -> bytes:
    """The bytes of a POST request.

    Args:
        url: The server; a path in it goes before `path`.
        path: Begins with a slash.
        data: The body.
        headers: Further headers, besides those that every request has.
    """
    parts = urlsplit(url)
    lines = [
        f"POST {parts.path.rstrip('/')}{path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "User-Agent: turnpike-loadtest",
        # no compression: the test measures the model, not a compressor
        "Accept-Encoding: identity",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data
