"""Opens connections to one server, with or without TLS."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from gevent import socket as gevent_socket
from gevent.ssl import create_default_context

from loadtest.generate.connection import READ_BYTES, Connection, NoAnswerError, PlainSocket


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


class TlsStream:
    """Encrypts and decrypts the bytes of one connection; sends and receives nothing itself."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._unsent, server_hostname=host)

    def shake_hands(self, socket: gevent_socket.socket) -> None:
        """Agree on keys with the server; an OSError if that fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                socket.sendall(self._unsent.read())
                if data := socket.recv(READ_BYTES):
                    self._received.write(data)
                else:
                    self._received.write_eof()
            else:
                socket.sendall(self._unsent.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        """The bytes to send for this data, and for the protocol itself; none without either."""
        if data:
            self._tls.write(data)
        return self._unsent.read()

    def decrypt(self, data: bytes) -> tuple[bytes, bool]:
        """The data in bytes that were received, and whether it is the end; no bytes are the end, too."""
        if data:
            self._received.write(data)
        else:
            self._received.write_eof()
        parts = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLError:
            # invalid, or the end without the message that announces it
            pass
        return b"".join(parts), True
