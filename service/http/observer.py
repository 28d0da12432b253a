"""Counts, logs and traces each request when it has ended."""

from __future__ import annotations

import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from service.errors import OverloadedError
from service.http.request import Request, new_ids, read_trace
from service.http.response import ErrorResponse, error_response
from service.telemetry.log import access_log

if TYPE_CHECKING:
    from service.http.tracing import Tracing
    from service.telemetry.counters import RequestCounters

log = logging.getLogger(__name__)

# status in the log and the metrics if the client left before an answer began; it is never sent
CLIENT_CLOSED_REQUEST = 499
# other methods share one label, so that a caller cannot make up labels
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_LOGGED_PATH_LENGTH = 200
# Suffixes of routes. Probes come every few seconds, so those answered with 200 are logged as debug.
PROBES = ("/live", "/ready")


class RequestObserver:
    """Is called at the start and the end of each request, and for input that is no valid request."""

    def __init__(self, counters: RequestCounters, tracing: Tracing | None, *, access_log: bool) -> None:
        self._counters = counters
        self._tracing = tracing
        self._access_log = access_log
        self._ids = new_ids()

    def started(self, request: Request) -> None:
        """Set the request's id (the caller's own if it is valid) and its trace."""
        request.started_ns = perf_counter_ns()
        self._counters.in_flight += 1
        head = request.head
        request.id = head.chosen_id or next(self._ids)
        if b"traceparent" in head.fields:
            request.trace = read_trace(head.fields[b"traceparent"])

    def error_response(self, error: Exception, request: Request) -> ErrorResponse:
        """The answer to an error, which is also counted and recorded for the log."""
        response = error_response(error, request)
        if response.is_bug:
            log.error("request %s failed", request.id, exc_info=error)
        self._counters.count_error(response.reason)
        request.error_message = response.message
        request.overloaded = isinstance(error, OverloadedError)
        return response

    def finished(self, request: Request) -> None:
        """Count, trace and log a request that has ended."""
        ns = perf_counter_ns() - request.started_ns
        counters = self._counters
        counters.in_flight -= 1
        status = request.status or CLIENT_CLOSED_REQUEST
        route = request.route_path
        method = request.head.method if request.head.method in METHODS else "unknown"
        counters.count_response(route, method, status, ns)
        if self._tracing is not None:
            self._tracing.record(request, route, method, status, ns)
        if self._access_log:
            is_routine = status == 200 and route.endswith(PROBES)
            access_log.add(
                log_fields(request, route, method, status, ns), logging.DEBUG if is_routine else logging.INFO
            )

    def rejected(self, status: int) -> str:
        """Count input that is no valid request, and return the request id for its answer."""
        self._counters.count_response("unknown", "unknown", status, 0)
        self._counters.count_error("bad_request")
        return next(self._ids)


def log_fields(request: Request, route: str, method: str, status: int, ns: int) -> dict[str, Any]:
    """The access log's fields for a request."""
    client, trace, result = request.client, request.trace, request.result
    fields: dict[str, Any] = {
        "id": request.id,
        "client": client[0] if client else None,
        "method": method,
        "path": request.head.raw_path[:MAX_LOGGED_PATH_LENGTH],
        "route": route,
        "status": status,
        "ms": ns // 1000 / 1000,
    }
    if trace is not None:
        fields["trace"], fields["span"] = trace.id, trace.span
    if result is not None:
        fields["model"] = f"{request.model_name}/{request.model_version}"
        fields["queue_ms"] = result.queue_ns // 1000 / 1000
        fields["run_ms"] = result.run_ns // 1000 / 1000
        fields["batch"] = result.batch_rows
    if request.error_message is not None:
        fields["error"] = request.error_message
    return fields
