"""One user of a server: a connection over which a request goes when the answer to the last one has come.

It does as little as can be beside that, as what it takes of the machine the server lacks: an answer that is
byte for byte the right one is not looked at further.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, MutableMapping
from time import perf_counter
from urllib.parse import urlsplit

from loadtest.generate.sender import Shot
from loadtest.workload.answer_check import Judge
from loadtest.workload.payloads import Body

BLOCK = 1 << 18
OK = b"200"
LOST = "connection lost"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class User:
    """Waits for no longer than its caller does: `hear` is for when there is something to read."""

    def __init__(
        self, url: str, shots: Iterator[Shot], judge: Judge, right: MutableMapping[Body, bytes]
    ) -> None:
        """`right` keeps the answers that were found good, for all users together."""
        self._url = urlsplit(url)
        self._shots, self._judge, self._right = shots, judge, right
        self.connection = self._connect()
        self._got = b""
        self.begun = 0.0

    def send(self) -> None:
        """Begin with the next request."""
        self._shot = next(self._shots)
        self._got = b""
        self.begun = perf_counter()
        try:
            self.connection.sendall(self._shot.request)
        except OSError:
            # which is heard as the end of the connection
            self.connection.shutdown(socket.SHUT_RDWR)

    def hear(self) -> tuple[bool, str | None]:
        """Read what is there: whether the answer is whole now, and why it is not a good one."""
        try:
            piece = self.connection.recv(BLOCK)
        except OSError:
            piece = b""
        if not piece:
            return True, LOST
        self._got = self._got + piece if self._got else piece
        head, gap, data = self._got.partition(b"\r\n\r\n")
        if not gap:
            return False, None
        if head[9:12] == OK and data == self._right.get(self._shot.body):
            return True, None
        length = _LENGTH.search(head)
        if length is None:
            return True, "the answer has no length"
        if len(data) < int(length[1]):
            # what is read already of a connection with TLS is not seen by who waits for more
            return self.hear() if self._pending() else (False, None)
        fault = self._judge.fault(self._shot.body, int(head[9:12]), _headers(head), data)
        if fault is None:
            self._right[self._shot.body] = data
        return True, fault

    def again(self) -> None:
        """A new connection in the place of one that was lost."""
        self.connection.close()
        self.connection = self._connect()

    def _pending(self) -> bool:
        return isinstance(self.connection, ssl.SSLSocket) and self.connection.pending() > 0

    def _connect(self) -> socket.socket:
        made = socket.create_connection((self._url.hostname, self._url.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._url.scheme != "https":
            return made
        # a server of ours on this machine, whose certificate names another
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(made)


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
