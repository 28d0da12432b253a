"""Counts, logs and traces each request when it has ended."""

from __future__ import annotations

import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from service.errors import OverloadedError
from service.http.request import Request, RequestIds, read_trace
from service.http.response import ErrorResponse, error_response

if TYPE_CHECKING:
    from service.http.tracing import Tracing
    from service.telemetry.access_log import AccessLog
    from service.telemetry.counters import RequestCounters

log = logging.getLogger(__name__)

# status in the log and the metrics if the client left before an answer began; it is never sent
CLIENT_CLOSED_REQUEST = 499
# other methods share one label, so that a caller cannot make up labels
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestObserver:
    """Is called at the start and the end of each request, and for input that is no valid request."""

    def __init__(
        self, counters: RequestCounters, tracing: Tracing | None, access_log: AccessLog | None
    ) -> None:
        self._counters = counters
        self._tracing = tracing
        self._access_log = access_log
        self._ids = RequestIds()

    def started(self, request: Request) -> None:
        """Set the request's id (the caller's own if it is valid) and its trace."""
        request.started_ns = perf_counter_ns()
        self._counters.in_flight += 1
        head = request.head
        request.id = head.chosen_id or self._ids.next()
        if b"traceparent" in head.fields:
            request.trace = read_trace(head.fields[b"traceparent"])

    def error_response(self, error: Exception, request: Request) -> ErrorResponse:
        """The answer to an error, which is also counted and recorded for the log."""
        response = error_response(error, request)
        if response.is_bug:
            log.error("request %s failed", request.id, exc_info=error)
        self._counters.count_error(response.reason)
        request.error_message = response.message
        request.overloaded = isinstance(error, OverloadedError | MemoryError)
        return response

    def finished(self, request: Request) -> None:
        """Count, trace and log a request that has ended."""
        ns = perf_counter_ns() - request.started_ns
        self._counters.in_flight -= 1
        status = request.status or CLIENT_CLOSED_REQUEST
        route = request.route_path
        head, client = request.head, request.client
        method = head.method if head.method in METHODS else "unknown"
        self._counters.count_response(route, method, status, ns)
        if self._tracing is not None:
            self._tracing.record(request, route, method, status, ns)
        if self._access_log is not None:
            self._access_log.add(
                (
                    client[0] if client else None,
                    head.method,
                    head.logged_path,
                    route,
                    status,
                    request.model_name,
                    request.model_version,
                ),
                request.id,
                ns,
                request.result,
                _extra_fields(request) if request.trace or request.error_message else None,
            )

    def refused(self, status: int) -> str:
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
