"""Pool of keep-alive HTTP connections to one server, for requests that are already bytes."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from select import POLLIN
from urllib.parse import urlsplit

from gevent import socket as gevent_socket
from gevent.monkey import get_original
from gevent.ssl import create_default_context
from geventhttpclient.response import HTTPParseError, HTTPSocketResponse

# bytes read from a socket at once
READ_BYTES = 64 * 1024
# messages of the parser for an answer that ends too early
CLOSED_MESSAGES = ("connection closed", "Incomplete response", "Invalid EOF state")
# the original poll(), which does not switch to another greenlet
poll = get_original("select", "poll")


class NoAnswerError(Exception):
    """A request that got no complete answer. Faults are counted by the message, so it is one of a few."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An HTTP answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class ConnectionPool:
    """Opens as many connections as there are requests at the same time, and keeps them open."""

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
        # The connection that was idle for longest is used first. So all connections are used, and with them
        # all workers of a server.
        self._idle: deque[gevent_socket.socket] = deque()

    def post(self, request: bytes) -> RawAnswer:
        """Send a request and read its answer; a request is never sent twice."""
        connection = self._take()
        reusable = False
        try:
            connection.sendall(request)
            response = HTTPSocketResponse(connection, READ_BYTES, "POST")
            data = response.read()
            reusable = not response.should_close()
            headers = {name.lower(): value for name, value in response.items()}
            return RawAnswer(response.status_code, headers, data)
        except HTTPParseError as error:
            closed = any(message in str(error) for message in CLOSED_MESSAGES)
            raise NoAnswerError("connection lost" if closed else "the answer is not HTTP") from error
        except OSError as error:
            raise NoAnswerError("connection lost") from error
        finally:
            if reusable:
                self._idle.append(connection)
            else:
                connection.close()

    def open(self, count: int) -> None:
        """Open connections until this many are idle; a failure is reported when a request needs one."""
        while len(self._idle) < count:
            try:
                self._idle.append(self._connect())
            except NoAnswerError:
                return

    def shrink(self, count: int) -> None:
        """Close idle connections until at most this many are left."""
        while len(self._idle) > count:
            self._idle.popleft().close()

    def _take(self) -> gevent_socket.socket:
        """An idle connection that the server has not closed, or a new one."""
        while self._idle:
            connection = self._idle.popleft()
            if _is_idle(connection):
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> gevent_socket.socket:
        try:
            connection = gevent_socket.create_connection(self._address)
        except ConnectionRefusedError as error:
            raise NoAnswerError("connection refused") from error
        except OSError as error:
            raise NoAnswerError("no connection") from error
        connection.setsockopt(gevent_socket.IPPROTO_TCP, gevent_socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=self._host)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise NoAnswerError("no TLS") from error
            raise


def _is_idle(connection: gevent_socket.socket) -> bool:
    """Whether there is nothing to read: on an idle connection, data means that the server closed it."""
    poller = poll()
    poller.register(connection.fileno(), POLLIN)
    return not poller.poll(0)


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
