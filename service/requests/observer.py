"""Traces each request when it has ended, and counts and logs all that ended in one turn of the event loop."""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from time import perf_counter_ns
from typing import Any

from turnpike.service.errors import OverloadedError
from turnpike.service.requests.error_response import error_response
from turnpike.service.requests.request import Request, RequestIds, read_trace
from turnpike.service.requests.response import ErrorResponse
from turnpike.service.requests.tracing import Tracing
from turnpike.service.telemetry.access_log import AccessLog, Entry
from turnpike.service.telemetry.counters import RequestCounters

log = logging.getLogger(__name__)

# status in the log and the metrics if the client left before an answer began; it is never sent
CLIENT_CLOSED_REQUEST = 499
# other methods share one label, so that a caller cannot make up labels
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestObserver:
    """Notified when a request starts or ends, or when input is no valid request."""

    def __init__(
        self, counters: RequestCounters, tracing: Tracing | None, access_log: AccessLog | None
    ) -> None:
        self._counters = counters
        self._tracing = tracing
        self._access_log = access_log
        self._ids = RequestIds()
        # requests that have ended and are not recorded yet
        self._ended: list[Request] = []

    def count_in(self, request: Request) -> None:
        """Identify a request, and count it among those in flight."""
        self.identify(request)
        self._counters.in_flight += 1

    def identify(self, request: Request) -> None:
        """Set the request's id (the caller's own if it is valid) and its trace, and note when it starts."""
        request.started_ns = perf_counter_ns()
        head = request.head
        request.id = head.chosen_id or self._ids.next()
        if head.traceparent is not None:
            request.trace = read_trace(head.traceparent)

    def error_response(self, error: Exception, request: Request) -> ErrorResponse:
        """The answer to an error, which is also counted and recorded for the log."""
        response = error_response(error, request)
        if response.is_bug:
            log.error("request %s failed", request.id, exc_info=error)
        self._counters.count_error(response.reason)
        request.error_message = response.message
        request.overloaded = isinstance(error, OverloadedError | MemoryError)
        return response

    def count_out(self, request: Request) -> None:
        """Note the end of a request that was counted among those in flight."""
        self._counters.in_flight -= 1
        self.note_end(request)

    def note_end(self, request: Request) -> None:
        """Trace a request that has ended, and note it for `record`. Does not change those in flight."""
        request.ended_ns = perf_counter_ns()
        if self._tracing is not None:
            self._trace(self._tracing, request)
        if not self._ended:
            # first, since nothing would record the list later if this failed
            get_running_loop().call_soon(self.record)
        self._ended.append(request)

    def _trace(self, tracing: Tracing, request: Request) -> None:
        method = request.head.method if request.head.method in METHODS else "unknown"
        status = request.status or CLIENT_CLOSED_REQUEST
        ns = request.ended_ns - request.started_ns
        tracing.record(request, request.route_path, method, status, ns)

    def record(self) -> None:
        """Count and log the requests that have ended since the last call, at the end of each loop turn."""
        ended, self._ended = self._ended, []
        times: dict[tuple[str, str, int], list[int]] = {}
        entries: list[Entry] = []
        for request in ended:
            head, client, route = request.head, request.client, request.route_path
            method, status = head.method, request.status or CLIENT_CLOSED_REQUEST
            ns = request.ended_ns - request.started_ns
            key = route, method if method in METHODS else "unknown", status
            if key in times:
                times[key].append(ns)
            else:
                times[key] = [ns]
            extra = _extra_fields(request) if request.trace or request.error_message else None
            host, path = client[0] if client else None, head.logged_path
            labels = host, method, path, route, status, request.model_name, request.model_version
            entries.append((labels, request.id, ns, request.result, extra))
        self._counters.count_responses(times)
        if self._access_log is not None:
            self._access_log.add(entries)

    def count_refused(self, status: int) -> str:
        """Count input that is no valid request, and return the request id for its answer."""
        self._counters.count_response("unknown", "unknown", status, 0)
        self._counters.count_error("bad_request")
        return self._ids.next()


def _extra_fields(request: Request) -> dict[str, Any]:
    """Fields of the access log that few requests have."""
    fields: dict[str, Any] = {}
    if request.trace is not None:
        fields |= {"trace": request.trace.id, "span": request.trace.span}
    if request.error_message is not None:
        fields["error"] = request.error_message
    return fields
