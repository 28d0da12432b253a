"""An HTTP request: its head and body, how to answer it, and what the log records of it.

Middleware, endpoints, log and traces know only `Request`. Its two subclasses read and write the bytes:
`WireRequest` on a connection of our own server, `AsgiRequest` under any ASGI server.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from turnpike.service.inference_types import InferenceResult, Waiter
from turnpike.service.requests.driver import Driver, DriverWaiter
from turnpike.service.requests.response import Response

Headers = list[tuple[bytes, bytes]]

# a request id that a caller may choose: short, printable, without spaces
VALID_ID = re.compile(rb"[\x21-\x7e]{1,128}")
MAX_LOGGED_PATH_LENGTH = 200
DRIFT_HEADER = b"x-turnpike-drift"
# The header `traceparent` of W3C: version, trace, parent span, flags. Later versions may add more fields.
TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


class ClientGoneError(Exception):
    """The client closed the connection before its request was answered, so no answer is sent."""


class RequestHead:
    """A parsed request line with its headers. It is shared by all requests that begin with the same bytes."""

    __slots__ = (
        "chosen_id",
        "content_length",
        "expects_continue",
        "fields",
        "head_bytes",
        "headers",
        "http_version",
        "keep_alive",
        "logged_path",
        "method",
        "path",
        "query",
        "raw_path",
        "request_bytes",
        "sends_csv",
        "skips_drift",
        "traceparent",
        "wants_csv",
    )

    def __init__(
        self,
        method: str,
        raw_path: str,
        path: str,
        query: bytes,
        headers: Headers,
        *,
        http_version: str = "1.1",
        keep_alive: bool = True,
        content_length: int | None = 0,
        expects_continue: bool = False,
    ) -> None:
        self.method = method
        # as sent, with its escapes: safe to log
        self.raw_path = raw_path
        self.logged_path = raw_path[:MAX_LOGGED_PATH_LENGTH]
        self.path = path
        self.query = query
        # in the order sent, names in lower case; `fields` has the last value of each name
        self.headers = headers
        self.fields = dict(headers)
        # the request id that the caller chose, if it is valid
        chosen_id = self.fields.get(b"x-request-id")
        self.chosen_id = chosen_id.decode() if chosen_id and VALID_ID.fullmatch(chosen_id) else None
        # Whether the caller, such as a load test, asks not to be counted in the drift of gates. None for an
        # unknown value, which is refused where a model would run.
        drift = self.fields.get(DRIFT_HEADER)
        self.skips_drift = None if drift not in (None, b"skip") else drift is not None
        # whether the body of a prediction is CSV, and whether its answer should be
        self.sends_csv = self.fields.get(b"content-type", b"")[:8].lower() == b"text/csv"
        self.wants_csv = b"text/csv" in self.fields.get(b"accept", b"")
        self.http_version = http_version
        self.keep_alive = keep_alive
        # bytes of the body; None if it comes in chunks
        self.content_length = content_length
        self.expects_continue = expects_continue
        self.traceparent = self.fields.get(b"traceparent")
        # bytes of the head, and with its body, if the head is cached
        self.head_bytes = self.request_bytes = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace that a request belongs to, our span in it, and the caller's span as its parent."""

    id: str
    span: str
    flags: int
    parent: str | None = None


class Request(ABC):
    """A request from its head to the line in the access log.

    Most attributes are class-level defaults: a request sets only what differs, which is cheaper than a full
    `__init__` for each of them.
    """

    head: RequestHead
    client: tuple[str, int] | None
    started_ns: int = 0
    ended_ns: int = 0
    id: str = ""
    trace: Trace | None = None

    path_params: Mapping[str, str] = MappingProxyType({})
    # pattern of the route, for metrics and the log
    route_path: str = "unknown"

    # all of the body if it had arrived when the request was started, else None: see `next_chunk`
    complete_body: bytes | None = None
    # the header that says how the body is compressed
    encoding_header: str = "Content-Encoding"
    # bytes of its body that count against the worker's memory budget until the request is over
    budgeted_bytes: int = 0
    # runs the request; None if an asyncio task does
    driver: Driver | None = None
    # an asyncio task handles the request at the moment, and the driver awaits the task
    in_task: bool = False
    # header lines to add to the answer, such as those of CORS
    extra_lines: bytes = b""

    # goes on when its client has gone, as requests do under other ASGI servers
    outlives_client: bool = False
    # called when the client has gone
    on_client_gone: Callable[[], object] | None = None
    # counted and logged by the service in the application that it was passed to
    recorded: bool = False

    # HTTP status of the answer; 0 until one has begun
    status: int = 0
    error_message: str | None = None
    # refused because the queue or the memory is full
    overloaded: bool = False
    client_gone: bool = False

    # the run of the model, for the log and for traces
    model_name: str | None = None
    model_version: int = 0
    result: InferenceResult | None = None
    inference_ended_ns: int = 0

    @property
    def body_length(self) -> int | None:
        """Bytes of the body as it is sent; None if that is not known."""
        return self.head.content_length

    @property
    def body_encoding(self) -> bytes | None:
        """How the body is compressed; None if it is not."""
        return self.head.fields.get(b"content-encoding")

    @property
    def grpc_code(self) -> int | None:
        """How a call of gRPC has ended, as a status code; None if the request is one of HTTP."""
        return None

    @abstractmethod
    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        """The next part of the body, and whether more follows.

        Raises ClientGoneError if the client closes the connection first, and TimeoutError at the deadline
        (by the event loop's clock), if there is one.
        """

    @abstractmethod
    def respond(self, response: Response) -> Awaitable[None] | None:
        """Send a whole answer; to be awaited if it returns an awaitable."""

    @abstractmethod
    async def respond_slowly(self, response: Response) -> None:
        """Send a large answer, and return when the client has read nearly all of it."""

    @abstractmethod
    def asgi(self) -> tuple[dict[str, Any], Any, Any]:
        """The request in the form of ASGI: scope, receive and send."""

    def waiter(self) -> Waiter:
        """A new waiter, on which the request can wait for its run."""
        if self.driver is None or self.in_task:
            return get_running_loop().create_future()
        return DriverWaiter(self.driver)

    def record_inference(self, name: str, version: int, result: InferenceResult, ended_ns: int) -> None:
        """Record the run of a model, for the log and for traces."""
        self.model_name = name
        self.model_version = version
        self.result = result
        self.inference_ended_ns = ended_ns


class RequestIds:
    """Makes unique request ids: a random prefix for this process, and a number."""

    def __init__(self) -> None:
        # drawn for the first id: a server may fork its workers after it has imported the application
        self._prefix = ""
        self._number = 0

    def next(self) -> str:
        self._number += 1
        if not self._prefix:
            self._prefix = os.urandom(8).hex()
        return f"{self._prefix}-{self._number:x}"


def read_trace(header: bytes) -> Trace | None:
    """The trace of a `traceparent` header; None if the header is malformed."""
    match = TRACEPARENT.fullmatch(header)
    if match is None or (match[1] == b"00" and match[5]):
        return None
    return Trace(match[2].decode(), os.urandom(8).hex(), int(match[4], 16), match[3].decode())
