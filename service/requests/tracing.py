"""OpenTelemetry tracing: a span for each request, with child spans for its time in the queue and its run.

Spans are made when a request has ended, from times that are measured in any case. Without the setting `otlp`,
OpenTelemetry is not imported.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from turnpike.common.distribution import VERSION, needs_extra
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.requests.request import Request, Trace

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer


TRACES_PATH = "/v1/traces"
# Codes of gRPC that OpenTelemetry's conventions take for errors of the server: UNKNOWN, DEADLINE_EXCEEDED,
# UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
GRPC_SERVER_ERRORS = frozenset({2, 4, 12, 13, 14, 15})
# seconds that a worker waits at its end for a collector that does not respond
CLOSE_SECONDS = 2.0


class Tracing:
    """Makes the spans of this worker, and sends them from a thread.

    The thread begins with the first span, so after a fork, and again after `close`: threads survive neither.
    """

    def __init__(self, make_provider: Callable[[], TracerProvider]) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._make_provider = make_provider
        # None before the first span
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Tracing | None:
        """The tracing, or None if no collector is set. Raises SettingError."""
        if settings.otlp is None:
            return None
        endpoint = _collector_endpoint(settings.otlp)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingError(needs_extra("otlp", str(error.name), "serve,serve-otel")) from error
        name = os.environ.get("OTEL_SERVICE_NAME", "turnpike")

        def make_provider() -> TracerProvider:
            provider = TracerProvider(resource=Resource.create({"service.name": name}))
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
            return provider

        return cls(make_provider)

    def record(self, request: Request, route: str, method: str, status: int, ns: int) -> None:
        """Make the spans of a request that has ended, and set its trace to the ids of its span."""
        ended = time.time_ns()
        api = self._trace
        code = request.grpc_code
        attributes: dict[str, str | int]
        if code is None:
            name = f"{method} {route}"
            attributes = {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
            }
        else:
            # `unknown`, without a service and a method, is a call that there is not
            name = route.removeprefix("/")
            service, _, method = name.partition("/")
            called = {"rpc.service": service, "rpc.method": method} if method else {}
            attributes = {"rpc.system": "grpc", **called, "rpc.grpc.status_code": code}
        span = self._started_tracer().start_span(
            name,
            context=self._parent_context(request.trace),
            kind=api.SpanKind.SERVER,
            attributes={**attributes, "turnpike.request_id": request.id},
            start_time=ended - ns,
        )
        if span.is_recording():
            self._record_run(request, span, ended)
            if status >= 500 if code is None else code in GRPC_SERVER_ERRORS:
                span.set_status(api.StatusCode.ERROR, request.error_message)
        span.end(ended)
        span_context = span.get_span_context()
        request.trace = Trace(
            api.format_trace_id(span_context.trace_id),
            api.format_span_id(span_context.span_id),
            span_context.trace_flags,
        )

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send the last spans, unless the collector takes longer than this."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is not None:
            shutdown = threading.Thread(target=provider.shutdown, daemon=True)
            shutdown.start()
            shutdown.join(seconds)

    def _started_tracer(self) -> Tracer:
        if self._tracer is None:
            self._provider = self._make_provider()
            self._tracer = self._provider.get_tracer("turnpike", VERSION)
        return self._tracer

    def _parent_context(self, trace: Trace | None) -> Context | None:
        """A context with the caller's span, which is the parent of ours."""
        if trace is None or trace.parent is None:
            return None
        api = self._trace
        parent = api.SpanContext(
            int(trace.id, 16), int(trace.parent, 16), is_remote=True, trace_flags=api.TraceFlags(trace.flags)
        )
        return api.set_span_in_context(api.NonRecordingSpan(parent))

    def _record_run(self, request: Request, span: Span, ended: int) -> None:
        """Make the spans of the queue and of the run. The run ended at `request.inference_ended_ns`."""
        model, result = request.model_name, request.result
        if model is None or result is None:
            return
        span.set_attributes({"turnpike.model": model, "turnpike.version": request.model_version})
        parent = self._trace.set_span_in_context(span)
        run_ended = ended - (perf_counter_ns() - request.inference_ended_ns)
        run_started = run_ended - result.run_ns
        tracer = self._started_tracer()
        queue = tracer.start_span("queue", parent, start_time=run_started - result.queue_ns)
        queue.end(run_started)
        run = tracer.start_span(
            "run", parent, attributes={"turnpike.batch": result.batch_rows}, start_time=run_started
        )
        run.end(run_ended)


def _collector_endpoint(address: str) -> str:
    """The URL that spans are sent to: the given address, with the standard path unless it has a path."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"otlp: expected an address such as http://127.0.0.1:4318, got {address!r}")
    return address if parts.path.strip("/") else address.rstrip("/") + TRACES_PATH
