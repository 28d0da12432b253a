"""Payload events: sends a copy of each request that runs a model, and of its answer, to a URL as CloudEvents.

Their form is that of KServe's logger, so that a receiver of its events understands these. Requests never wait
for the receiver: they put their bytes on a queue. Events for which it has no room are dropped, and counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import orjson

from turnpike.service.config.settings import Settings
from turnpike.service.requests.event_sink import EventSink, SinkError
from turnpike.service.requests.request import VALID_ID, Request
from turnpike.service.requests.response import Response

log = logging.getLogger(__name__)

# Events that wait to be sent, and bytes of their payloads. A worker holds them beside those of `--max-held`.
MAX_EVENTS = 1000
MAX_BYTES = 32 << 20
# events that are sent at a time, each on a connection of its own; and how many wait for each before another
# connection is opened
MAX_SENDERS = 4
EVENTS_PER_SENDER = 16
# Seconds from an event until it is sent, so that sending does not delay the request that it belongs to.
DELAY_SECONDS = 0.01
# seconds that the receiver has for an event, and for which a sender stops after the receiver has failed
SEND_SECONDS = 5.0
PAUSE_SECONDS = 1.0
# seconds between two warnings: a receiver may refuse every second event
WARNING_SECONDS = 60.0
# seconds that a worker waits at its end for the last events to be sent
CLOSE_SECONDS = 2.0

TYPES = {kind: f"org.kubeflow.serving.inference.{kind}" for kind in ("request", "response")}
# in a pod, the file that has its namespace
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# the length of the JSON before binary tensors, which an event keeps as KServe's logger keeps such headers
JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
JSON_LENGTH_FIELD = JSON_LENGTH_HEADER.lower().encode()
MAX_CONTENT_TYPE_BYTES = 200
# what an attribute of an event may contain as it is; other characters are escaped
PLAIN_CHARACTERS = "!#$&'()*+,/:;<=>?@[\\]^`{|}~"


@dataclass(frozen=True, slots=True)
class PayloadEvent:
    """A request or an answer. Its headers are made when it is sent."""

    kind: str
    id: str
    seconds: float
    model_name: str
    model_version: int
    is_grpc: bool
    # headers of the request, or lines of the answer
    headers: Mapping[bytes, bytes] | bytes
    body: bytes

    def lines(self, context_lines: str) -> bytes:
        """The header lines of CloudEvents; `context_lines` are those that all events of a process share."""
        headers = self.headers
        if isinstance(headers, bytes):
            headers = dict(line.lower().split(b": ", 1) for line in headers.splitlines())
        content_type = headers.get(b"content-type", b"application/json")[:MAX_CONTENT_TYPE_BYTES]
        metadata = {}
        if self.is_grpc:
            # the message alone, without the frames of gRPC
            content_type = b"application/x-protobuf"
        elif JSON_LENGTH_FIELD in headers:
            metadata = {JSON_LENGTH_HEADER: [headers[JSON_LENGTH_FIELD].decode("latin-1")]}
        time_text = datetime.fromtimestamp(self.seconds, UTC).isoformat(timespec="microseconds")
        return (
            f"Ce-Specversion: 1.0\r\nCe-Id: {_escape(self.id)}\r\nCe-Type: {TYPES[self.kind]}\r\n"
            f"Ce-Time: {time_text.replace('+00:00', 'Z')}\r\n{context_lines}"
            f"Ce-Inferenceservicename: {_escape(self.model_name)}\r\n"
            f"Ce-Modelversion: {self.model_version}\r\n"
            f"Ce-Metadata: {_escape(orjson.dumps(metadata).decode())}\r\n"
        ).encode() + b"Content-Type: %b\r\n" % content_type


class PayloadEvents:
    """The events of a worker. Tasks of its event loop send them, since threads would hold up all others.

    Args:
        url: Where events are sent.
        kinds: Which to send: `request`, `response`, or both.
        max_events: Events that wait at most.
        max_bytes: Bytes of their payloads.
        send_seconds: Time for each.
        pause_seconds: How long a sender stops after the receiver has failed.
    """

    def __init__(
        self,
        url: str,
        kinds: frozenset[str] = frozenset(TYPES),
        *,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        send_seconds: float = SEND_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._sink, self._kinds = EventSink(url, send_seconds), kinds
        self._max_events, self._max_bytes = max_events, max_bytes
        self._pause_seconds = pause_seconds
        self._queue: deque[PayloadEvent] = deque()
        # of the events in the queue and on their way
        self._bytes = 0
        # they run while there are events
        self._senders: set[asyncio.Task[None]] = set()
        # whether a warning was logged since the last event that was received, and when the next may be
        self._is_failing = False
        self._next_warning = 0.0
        # sent: answered with 2xx; failed: not; dropped: the queue was full, or the worker ended
        self.counts = {"sent": 0, "failed": 0, "dropped": 0}
        self._context_lines = (
            f"Ce-Source: {_escape(socket.gethostname())}\r\nCe-Namespace: {_escape(_namespace())}\r\n"
            "Ce-Component: predictor\r\nCe-Endpoint: default\r\n"
        )

    @classmethod
    def from_settings(cls, settings: Settings) -> PayloadEvents | None:
        """The events, or None if no receiver is set."""
        url, mode = settings.payload_events, settings.payload_mode
        if url is None:
            return None
        return cls(url, frozenset(TYPES if mode == "all" else {mode}))

    def add_request(self, request: Request, name: str, version: int, body: bytes) -> None:
        """Send the body of a request for this model, if requests are sent."""
        if "request" in self._kinds:
            self._add("request", request, name, version, request.head.fields, body)

    def add_response(self, request: Request, name: str, version: int, response: Response) -> None:
        """Send an answer of this model, if answers are sent."""
        if "response" in self._kinds:
            self._add("response", request, name, version, response.lines, response.body)

    def _add(
        self,
        kind: str,
        request: Request,
        name: str,
        version: int,
        headers: Mapping[bytes, bytes] | bytes,
        body: bytes,
    ) -> None:
        if len(self._queue) >= self._max_events or self._bytes + len(body) > self._max_bytes:
            self.counts["dropped"] += 1
            return
        event_id = request.id
        # as KServe's logger: a caller that sends events chooses the id
        chosen_id = request.head.fields.get(b"ce-id")
        if chosen_id is not None and VALID_ID.fullmatch(chosen_id):
            event_id = chosen_id.decode()
        is_grpc = request.grpc_code is not None
        self._queue.append(PayloadEvent(kind, event_id, time.time(), name, version, is_grpc, headers, body))
        self._bytes += len(body)
        if len(self._queue) > EVENTS_PER_SENDER * len(self._senders) and len(self._senders) < MAX_SENDERS:
            sender = asyncio.get_running_loop().create_task(self._send_all())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send_all(self) -> None:
        """Send events until none is left."""
        await asyncio.sleep(DELAY_SECONDS)
        while self._queue:
            event, outcome, is_down = self._queue.popleft(), "dropped", False
            try:
                await self._sink.post(event.lines(self._context_lines), event.body)
                outcome = "sent"
                if self._is_failing:
                    self._is_failing = False
                    log.info("payload events are received again")
            except (SinkError, MemoryError) as error:
                outcome, is_down = "failed", getattr(error, "is_down", True)
                if not self._is_failing and time.monotonic() >= self._next_warning:
                    self._is_failing = True
                    self._next_warning = time.monotonic() + WARNING_SECONDS
                    log.warning("payload events are lost: %s (--payload-events)", error)
            finally:
                self._bytes -= len(event.body)
                self.counts[outcome] += 1
                # not kept during a pause
                del event
            if is_down:
                await asyncio.sleep(self._pause_seconds)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send the last events, unless that takes longer than this, and close the connections."""
        if self._senders:
            _, late = await asyncio.wait(self._senders, timeout=seconds)
            for sender in late:
                sender.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if left := len(self._queue):
            log.warning("%d payload events were not sent before the end", left)
            self.counts["dropped"] += left
            self._bytes -= sum(len(event.body) for event in self._queue)
            self._queue.clear()
        self._sink.close()


def _namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text("utf-8").strip()
    except OSError:
        return "default"


def _escape(text: str) -> str:
    """Text as CloudEvents writes it into a header."""
    return quote(text, safe=PLAIN_CHARACTERS)
