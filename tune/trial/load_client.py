"""One user of a closed loop: a connection that sends a request when the answer to the last one has arrived.

It takes as little CPU time as possible, because it shares the machine with the server that is measured. So an
answer that equals a correct one byte for byte is not decoded.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, MutableMapping
from time import perf_counter
from urllib.parse import urlsplit

from loadtest.generate.sender import PreparedRequest
from loadtest.workload.answer_check import AnswerChecker
from loadtest.workload.payloads import Payload

# bytes read from a socket at once
READ_BYTES = 1 << 18
OK = b"200"
LOST = "connection lost"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class LoadClient:
    """Never waits for data: the caller calls `receive` when there is something to read."""

    def __init__(
        self,
        url: str,
        requests: Iterator[PreparedRequest],
        checker: AnswerChecker,
        correct_answers: MutableMapping[Payload, bytes],
    ) -> None:
        """Connect to the server.

        Args:
            url: The server.
            requests: Endless requests to send.
            checker: Checks the answers.
            correct_answers: Bodies of answers that were checked, shared by all clients of the process.
        """
        self._url = urlsplit(url)
        self._requests, self._checker, self._correct_answers = requests, checker, correct_answers
        self.connection = self._connect()
        self._received = b""
        self.sent_at = 0.0

    def send(self) -> None:
        """Send the next request."""
        self._request = next(self._requests)
        self._received = b""
        self.sent_at = perf_counter()
        try:
            self.connection.sendall(self._request.data)
        except OSError:
            # `receive` then sees the end of the connection
            self.connection.shutdown(socket.SHUT_RDWR)

    def receive(self) -> tuple[bool, str | None]:
        """Read available data; returns whether the answer is complete, and its fault if it is not good."""
        try:
            data = self.connection.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            return True, LOST
        self._received = self._received + data if self._received else data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return False, None
        # status 200 and a body that was checked before
        payload = self._request.payload
        if head[9:12] == OK and body == self._correct_answers.get(payload):
            return True, None
        length = _LENGTH.search(head)
        if length is None:
            return True, "the answer has no length"
        if len(body) < int(length[1]):
            # data that TLS has already decrypted does not make the socket readable
            return self.receive() if self._has_decrypted_data() else (False, None)
        fault = self._checker.check(payload, int(head[9:12]), _parse_headers(head), body)
        if fault is None:
            self._correct_answers[payload] = body
        return True, fault

    def reconnect(self) -> None:
        """Replace a lost connection."""
        self.connection.close()
        self.connection = self._connect()

    def _has_decrypted_data(self) -> bool:
        return isinstance(self.connection, ssl.SSLSocket) and self.connection.pending() > 0

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self._url.hostname, self._url.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._url.scheme != "https":
            return connection
        # the server is our own, on this machine, and its certificate names another host
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(connection)


def _parse_headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
