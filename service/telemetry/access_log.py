"""Access log: one line for each request, in JSON, or a short one if stderr is a terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

import orjson

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.telemetry.log_writer import log_writer

if TYPE_CHECKING:
    from turnpike.service.inference_types import InferenceResult

# client, method, path, route and status of a request, then name and version of the model that it ran, if any
Labels = tuple[str | None, str, str, str, int, str | None, int]

# Labels, request id, nanoseconds from the start of the request to the end of writing its answer, the result
# of the model's run if there was one, and fields that few requests have.
Entry = tuple[Labels, str, int, "InferenceResult | None", Mapping[str, Any] | None]

# Suffixes of routes. Probes come every few seconds, so those answered with 200 are logged as debug.
PROBES = ("/live", "/ready", "/Check", "/ServerLive", "/ServerReady")
# With more clients and paths than this in use at a time, lines are rendered anew.
MAX_CACHED_LABELS = 1024
NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000
# A line without and with a run of a model: its start, labels, id, milliseconds in all and in the queue, the
# run, and extra fields.
LINE = b'%b%b,"id":%b,"ms":%.3f%b}\n'
RUN_LINE = b'%b%b,"id":%b,"ms":%.3f,"queue_ms":%.3f%b%b}\n'
RUN = b',"run_ms":%.3f,"batch":%d'


class AccessLog:
    """Renders the lines of requests.

    Most of a line is the same for many requests, and is rendered once.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        # rendered labels; empty if such requests are not logged
        self._rendered_labels: BoundedCache[Labels, bytes] = BoundedCache(MAX_CACHED_LABELS)
        # the present second, as a number and as the first bytes of its lines
        self._second = 0
        self._time_text = b""
        self.configure(None, human=False, min_level=logging.INFO)

    def configure(self, worker: int | None, *, human: bool, min_level: int) -> None:
        """Set the worker's number, the form of the lines, and the level below which they are dropped."""
        self._worker, self._human, self._min_level = worker, human, min_level
        self._rendered_labels.clear()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the lines of requests that have ended now."""
        second, second_ns = divmod(time_ns(), NS_PER_SECOND)
        if second != self._second:
            self._second = second
            self._time_text = f"{datetime.fromtimestamp(second, UTC):%FT%T}".encode()
        start = b'{"time":"%b.%06dZ",' % (self._time_text, second_ns // 1000)
        rendered_labels = self._rendered_labels
        lines: list[bytes] = []
        # requests of one run follow one another, and have its figures in common
        run_ns, batch_rows, run_text = -1, -1, b""
        for labels, request_id, ns, result, extra_fields in entries:
            text = rendered_labels.get(labels)
            if text is None:
                text = rendered_labels.add(labels, self._render(labels))
            if not text:
                continue
            extra = b"" if extra_fields is None else b"," + orjson.dumps(extra_fields)[1:-1]
            ms = ns / NS_PER_MS
            if self._human:
                lines.append(b"%b %b %.1f ms\n" % (f"{datetime.now():%H:%M:%S}".encode(), text, ms))
            elif result is None:
                lines.append(LINE % (start, text, orjson.dumps(request_id), ms, extra))
            else:
                if result.run_ns != run_ns or result.batch_rows != batch_rows:
                    run_ns, batch_rows = result.run_ns, result.batch_rows
                    run_text = RUN % (run_ns / NS_PER_MS, batch_rows)
                queue_ms = result.queue_ns / NS_PER_MS
                lines.append(
                    RUN_LINE % (start, text, orjson.dumps(request_id), ms, queue_ms, run_text, extra)
                )
        if lines:
            self._write(b"".join(lines))

    def _render(self, labels: Labels) -> bytes:
        client, method, path, route, status, model, version = labels
        is_routine = status == 200 and route.endswith(PROBES)
        if (logging.DEBUG if is_routine else logging.INFO) < self._min_level:
            return b""
        if self._human:
            return f"{method} {path} {status}".encode()
        fields = {
            "level": "debug" if is_routine else "info",
            "logger": "access",
            "worker": self._worker,
            "client": client,
            "method": method,
            "path": path,
            "route": route,
            "status": status,
        }
        if model is not None:
            fields["model"] = f"{model}/{version}"
        return orjson.dumps(fields)[1:-1]


access_log = AccessLog(log_writer.add)
