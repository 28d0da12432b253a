"""TLS of a connection, between its bytes in memory and those on the network."""

from __future__ import annotations

import ssl

from gevent import socket as gevent_socket

# bytes read at once
READ_BYTES = 64 * 1024


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
