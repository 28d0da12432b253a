"""Kept connections to one server, over which requests that are already bytes go, one at a time on each."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from select import POLLIN
from urllib.parse import urlsplit

from gevent import socket as cooperative
from gevent.monkey import get_original
from gevent.ssl import create_default_context
from geventhttpclient.response import HTTPParseError, HTTPSocketResponse

# bytes that are read at once
BLOCK = 64 * 1024
# what the parser says of an answer that has no end
ENDED = ("connection closed", "Incomplete response", "Invalid EOF state")
# asks without letting other greenlets run
poll = get_original("select", "poll")


class NoAnswerError(Exception):
    """A request that got no whole answer; its text is one of few, since they are counted by it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Connections:
    """Opens as many connections to a server as there are requests at one time, and keeps them."""

    def __init__(self, url: str, insecure: bool) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = create_default_context()
            if insecure:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE
        self._address = self._host, parts.port or (80 if self._tls is None else 443)
        # the one idle for longest goes first: so all are in use, and with them all workers of a server
        self._idle: deque[cooperative.socket] = deque()

    def post(self, request: bytes) -> Answer:
        """Send a request and read its answer; nothing is sent twice."""
        connection = self._take()
        kept = False
        try:
            connection.sendall(request)
            response = HTTPSocketResponse(connection, BLOCK, "POST")
            data = response.read()
            kept = not response.should_close()
            headers = {name.lower(): value for name, value in response.items()}
            return Answer(response.status_code, headers, data)
        except HTTPParseError as error:
            ended = any(words in str(error) for words in ENDED)
            raise NoAnswerError("connection lost" if ended else "the answer is not HTTP") from error
        except OSError as error:
            raise NoAnswerError("connection lost") from error
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()

    def open(self, count: int) -> None:
        """Have so many connections ready; those that cannot be opened are missed when they are needed."""
        while len(self._idle) < count:
            try:
                self._idle.append(self._connect())
            except NoAnswerError:
                return

    def keep(self, count: int) -> None:
        """Close all idle connections but so many."""
        while len(self._idle) > count:
            self._idle.popleft().close()

    def _take(self) -> cooperative.socket:
        """An idle connection that the server has not closed, or a new one."""
        while self._idle:
            connection = self._idle.popleft()
            if _quiet(connection):
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> cooperative.socket:
        try:
            connection = cooperative.create_connection(self._address)
        except ConnectionRefusedError as error:
            raise NoAnswerError("connection refused") from error
        except OSError as error:
            raise NoAnswerError("no connection") from error
        connection.setsockopt(cooperative.IPPROTO_TCP, cooperative.TCP_NODELAY, 1)
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=self._host)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise NoAnswerError("no TLS") from error
            raise


def _quiet(connection: cooperative.socket) -> bool:
    """Whether nothing lies there to read: on an idle connection that would be its end."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return not waiting.poll(0)


def composed(url: str, path: str, data: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole request; a path comes after the one that the URL has."""
    parts = urlsplit(url)
    lines = [
        f"POST {parts.path.rstrip('/')}{path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "User-Agent: turnpike-loadtest",
        # what is measured is the model, not a compressor
        "Accept-Encoding: identity",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data
