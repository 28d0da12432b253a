"""Opens connections to one server, with or without TLS."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from gevent import socket as gevent_socket
from gevent.ssl import create_default_context

from turnpike.loadtest.generate.connection import Connection, NoAnswerError, PlainSocket
from turnpike.loadtest.generate.tls_stream import TlsStream


class ServerAddress:
    """The server that a load test is for."""

    def __init__(self, url: str, insecure: bool) -> None:
        """Take the server of a URL; `insecure` accepts any TLS certificate."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = create_default_context()
            if insecure:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE
        self._address = self._host, parts.port or (80 if self._tls is None else 443)

    def connect(self) -> Connection:
        """Open a connection; the greenlet waits for it. A NoAnswerError if there is none."""
        try:
            socket = gevent_socket.create_connection(self._address)
        except ConnectionRefusedError as error:
            raise NoAnswerError("connection refused") from error
        except OSError as error:
            raise NoAnswerError("no connection") from error
        try:
            socket.setsockopt(gevent_socket.IPPROTO_TCP, gevent_socket.TCP_NODELAY, 1)
            stream = None if self._tls is None else TlsStream(self._tls, self._host)
            if stream is not None:
                stream.shake_hands(socket)
            return Connection(PlainSocket(fileno=socket.detach()), stream)
        except BaseException as error:
            socket.close()
            if isinstance(error, OSError):
                raise NoAnswerError("no TLS") from error
            raise
