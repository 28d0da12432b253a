"""One request and its answer, as the door sees them pass: whose they are, and what came of them."""

from __future__ import annotations

import os
import re
from asyncio import Task, get_running_loop
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from starlette.types import Message, Scope, Send

if TYPE_CHECKING:
    from service.inference_types import InferenceResult, Waiter
    from service.registry.model import Model

# what a request id of a caller may be: short, printable, without spaces
SANE_ID = re.compile(rb"[\x21-\x7e]{1,128}")
# W3C trace context: version, trace, parent, flags; later versions may add more
TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)

NOSNIFF = (b"x-content-type-options", b"nosniff")
CLOSE = (b"connection", b"close")


def new_ids() -> Iterator[str]:
    """Request ids that no other worker makes, for all its life."""
    prefix, number = os.urandom(8).hex(), 0
    while True:
        number += 1
        yield f"{prefix}-{number:x}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace that a request belongs to, our span in it, and the caller's above ours."""

    id: str
    span: str
    flags: int
    parent: str | None = None


class Course:
    """What is known of a request: whose it is, and what became of it."""

    __slots__ = (
        "abandoned",
        "answer",
        "began",
        "id",
        "model",
        "query",
        "ran_at",
        "said",
        "status",
        "trace",
        "turned_away",
    )

    def __init__(self, ids: Iterator[str], given: bytes | None, trace: bytes | None) -> None:
        """With the caller's id where it `given` one that can be taken, and its `trace`."""
        self.began = perf_counter_ns()
        sane = given is not None and SANE_ID.fullmatch(given)
        self.id = given.decode() if given is not None and sane else next(ids)
        self.query = b""
        # of HTTP; 0 until an answer has begun
        self.status = 0
        # there was no room for it
        self.turned_away = False
        # the client has gone before an answer
        self.abandoned = False
        # the sentence of an error
        self.said: str | None = None
        self.trace = None if trace is None else read_trace(trace)
        self.model: Model | None = None
        self.answer: InferenceResult | None = None
        self.ran_at = 0

    def future(self) -> Waiter:
        """What a step of it may wait for."""
        return get_running_loop().create_future()

    def ran(self, model: Model, answer: InferenceResult) -> None:
        """Told by an endpoint whose model has just run, for the log and for traces."""
        self.model = model
        self.answer = answer
        self.ran_at = perf_counter_ns()


class Exchange(Course):
    """Stands in for the server's `send`, so that each answer has the headers that all have."""

    __slots__ = ("_send", "task")

    def __init__(self, scope: Scope, send: Send, ids: Iterator[str]) -> None:
        given = trace = None
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value
            elif name == b"traceparent":
                trace = value
        super().__init__(ids, given, trace)
        self._send = send
        self.query = scope.get("query_string", b"")
        # what answers it
        self.task: Task[None] | None = None

    def __call__(self, message: Message) -> Awaitable[None]:
        """Pass a message on to the server."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self.id.encode()), NOSNIFF]
            message["headers"] = headers
        return self._send(message)

    def abandon(self) -> None:
        """Told by the connection when its client has gone: what still waits for its run is not run."""
        if not self.status and self.task is not None and not self.abandoned:
            self.abandoned = True
            self.task.cancel()


def read_trace(header: bytes) -> Trace | None:
    """The trace that a `traceparent` header tells of; one that is no such header is as good as none."""
    match = TRACEPARENT.fullmatch(header)
    if match is None or (match[1] == b"00" and match[5]):
        return None
    return Trace(match[2].decode(), os.urandom(8).hex(), int(match[4], 16), match[3].decode())
