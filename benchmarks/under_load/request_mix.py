"""A client that sends a mix of all kinds of requests as fast as it can, and checks the status of each answer.

Each connection sends requests alone and in groups, and ends after some hundred requests: in order, with an
answer unread, or within a request.
"""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Callable, Iterator

import numpy as np
import orjson

from benchmarks.errors import BenchmarkError

MODEL = "/v2/models/digits-10"
# requests that are sent together, before their answers are read
GROUP_REQUESTS = 16
# most requests of one connection
MAX_CONNECTION_REQUESTS = 400
# answers are read in pieces of at most this many bytes
READ_BYTES = 1 << 18
# seconds without a byte of an answer that is due
ANSWER_TIMEOUT_SECONDS = 60

ANSWER_HEAD = re.compile(
    rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n(?:[^\r]+\r\n)*?content-length: (\d+)\r\n(?:[^\r]+\r\n)*\r\n"
)
# closing a socket with this option resets the connection
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

# the bytes of a request, and the status of its answer
Request = tuple[bytes, int]
RequestMaker = Callable[[int], Request]


def encode(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def weighted_requests() -> list[tuple[int, RequestMaker]]:
    """Every kind of request: its share in a thousand, and a function that makes it.

    The function gets a number that no other request had.
    """
    rows = np.random.default_rng(0).integers(0, 17, (32, 1, 8, 8)).astype(np.float32)

    def json_body(count: int, **more: object) -> bytes:
        values = rows[:count].ravel().tolist()
        tensor = {"name": "x", "shape": [count, 1, 8, 8], "datatype": "FP32", "data": values}
        return orjson.dumps({**more, "inputs": [tensor]})

    def binary(count: int) -> bytes:
        values = rows[:count]
        tensor = {
            "name": "x",
            "shape": [count, 1, 8, 8],
            "datatype": "FP32",
            "parameters": {"binary_data_size": values.nbytes},
        }
        head = orjson.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]})
        length = f"Inference-Header-Content-Length: {len(head)}"
        return encode("POST", f"{MODEL}/infer", head + values.tobytes(), length)

    def always(data: bytes, status: int = 200) -> RequestMaker:
        return lambda number: (data, status)

    one_row = json_body(1)
    instances = orjson.dumps({"instances": rows[:1].tolist()})
    return [
        (400, always(encode("POST", f"{MODEL}/infer", one_row))),
        (40, always(encode("POST", f"{MODEL}/infer", json_body(32)))),
        (300, always(binary(1))),
        (20, always(binary(32))),
        (90, always(encode("POST", "/v1/models/digits-10:predict", instances))),
        (30, always(encode("POST", f"{MODEL}/gates", one_row))),
        (10, always(encode("POST", f"{MODEL}/gates?detail=units", one_row))),
        (2, always(encode("POST", f"{MODEL}/lesion", json_body(1, close=[3])))),
        (1, always(encode("GET", "/metrics"))),
        (1, always(encode("GET", f"{MODEL}/stats"))),
        (2, always(encode("GET", MODEL))),
        (4, always(encode("GET", "/v2/health/ready"))),
        # heads and forms of JSON that were never seen before, which go through every cache
        (30, lambda number: (encode("POST", f"{MODEL}/infer", one_row, f"X-Request-Id: r-{number}"), 200)),
        (20, lambda number: (encode("POST", f"{MODEL}/infer", json_body(1, id=f"id-{number}")), 200)),
        (10, lambda number: (encode("POST", f"{MODEL}/infer", one_row + b" " * (number % 5000)), 200)),
        # requests that are refused
        (10, always(encode("POST", f"{MODEL}/infer", b'{"inputs":[]}'), 400)),
        (10, lambda number: (encode("POST", f"{MODEL}/infer", b'{"inputs":[%d' % number), 400)),
        (10, lambda number: (encode("POST", f"/v2/models/absent-{number}/infer", one_row), 404)),
        (5, lambda number: (encode("GET", f"/absent/{number}"), 404)),
        (5, lambda number: (encode("POST", f"{MODEL}/gates?detail={number}", one_row), 400)),
    ]


class MixedClient:
    """Sends the mix over one connection after another; `answered` is the number of answers so far."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        """Clients with different seeds send different requests, in a different order."""
        self.answered = 0
        self.aborted = 0
        self.connections = 0
        self._address = address
        self._random = random.Random(seed)
        shares, makers = zip(*weighted_requests(), strict=True)
        self._makers = self._random.choices(makers, shares, k=10_000)
        self._numbers = iter(range(seed << 40, (seed + 1) << 40))
        self._turn = 0

    def send(self, count: int) -> None:
        """Send at least `count` requests. Raises BenchmarkError if an answer is missing or wrong."""
        end = self.answered + count
        while self.answered < end:
            self.connections += 1
            with socket.create_connection(self._address, timeout=ANSWER_TIMEOUT_SECONDS) as connection:
                left = min(self._random.randint(1, MAX_CONNECTION_REQUESTS), end - self.answered)
                while left > 0:
                    group = min(left, self._random.choice((1, 1, 1, GROUP_REQUESTS)))
                    self._exchange(connection, [self._next_request() for _ in range(group)])
                    left -= group
                self._end(connection)

    def _next_request(self) -> Request:
        self._turn = (self._turn + 1) % len(self._makers)
        return self._makers[self._turn](next(self._numbers))

    def _exchange(self, connection: socket.socket, requests: list[Request]) -> None:
        """Send requests together, and check the status of their answers."""
        connection.sendall(b"".join(data for data, _ in requests))
        answers = read_answers(connection)
        for data, expected in requests:
            status, body = next(answers)
            if status != expected:
                raise BenchmarkError(
                    f"{data[:80]!r}: expected an answer with {expected}, got {status} {body[:200]!r}"
                )
            self.answered += 1

    def _end(self, connection: socket.socket) -> None:
        """End the connection in one of four ways."""
        way = self._random.randrange(4)
        if way == 0:
            return
        data, _ = self._next_request()
        if way == 1:
            data = data[: self._random.randrange(1, len(data))]
        connection.sendall(data)
        self.aborted += 1
        if way != 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


def read_answers(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Status and body of each answer."""
    buffer, position = b"", 0
    while True:
        head = ANSWER_HEAD.match(buffer, position)
        if head is not None and len(buffer) >= (end := head.end() + int(head[2])):
            yield int(head[1]), buffer[head.end() : end]
            position = end
            continue
        data = connection.recv(READ_BYTES)
        if not data:
            raise BenchmarkError(f"expected an answer, got the end of the connection after {buffer[-200:]!r}")
        buffer, position = buffer[position:] + data, 0
