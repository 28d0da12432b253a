"""OpenTelemetry, where a collector is named: a span a request, and in it one of its wait and one of its run.

Spans are made when a request is over, of what was measured anyway. Without a collector nothing is imported.
"""

from __future__ import annotations

import os
import threading
import time
from time import perf_counter_ns
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from service.errors import SettingError
from service.http.request import Request, Trace
from service.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from service.config.settings import Settings

TRACES_PATH = "/v1/traces"
# a worker that ends does not wait for a collector that is away
CLOSE_SECONDS = 2.0


class Tracing:
    """Where the spans of this worker go. It sends them from a thread of its own, so make it after a fork."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("turnpike", VERSION)

    @classmethod
    def from_settings(cls, settings: Settings) -> Tracing | None:
        """None where no collector is named; a SettingError where it cannot be sent to."""
        if settings.otlp is None:
            return None
        endpoint = _collector_endpoint(settings.otlp)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingError(
                f"otlp: expected the packages of the extra serve-otel, and {error.name} is not installed"
            ) from error
        name = os.environ.get("OTEL_SERVICE_NAME", "turnpike")
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        return cls(provider)

    def record(self, request: Request, route: str, method: str, status: int, ns: int) -> None:
        """Make the spans of a request that is over, after which its trace is that of its span."""
        ended = time.time_ns()
        api = self._trace
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._above(request.trace),
            kind=api.SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "turnpike.request_id": request.id,
            },
            start_time=ended - ns,
        )
        if span.is_recording():
            self._record_run(request, span, ended)
            if status >= 500:
                span.set_status(api.StatusCode.ERROR, request.error_message)
        span.end(ended)
        own = span.get_span_context()
        request.trace = Trace(
            api.format_trace_id(own.trace_id), api.format_span_id(own.span_id), own.trace_flags
        )

    def close(self) -> None:
        """Send what has not been sent, unless the collector does not take it in time."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)

    def _above(self, trace: Trace | None) -> Context | None:
        """The caller's span, as what ours lies in."""
        if trace is None or trace.parent is None:
            return None
        api = self._trace
        parent = api.SpanContext(
            int(trace.id, 16), int(trace.parent, 16), is_remote=True, trace_flags=api.TraceFlags(trace.flags)
        )
        return api.set_span_in_context(api.NonRecordingSpan(parent))

    def _record_run(self, request: Request, span: Span, ended: int) -> None:
        """The wait and the run, which ended when the endpoint was given its answer."""
        model, answer = request.model_name, request.result
        if model is None or answer is None:
            return
        span.set_attributes({"turnpike.model": model, "turnpike.version": request.model_version})
        within = self._trace.set_span_in_context(span)
        ran = ended - (perf_counter_ns() - request.inference_ended_ns)
        began = ran - answer.run_ns
        queue = self._tracer.start_span("queue", within, start_time=began - answer.queue_ns)
        queue.end(began)
        run = self._tracer.start_span(
            "run", within, attributes={"turnpike.batch": answer.batch_rows}, start_time=began
        )
        run.end(ran)


def _collector_endpoint(address: str) -> str:
    """Where spans are posted: at the usual path, unless the address has one."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"otlp: expected an address such as http://127.0.0.1:4318, got {address!r}")
    return address if parts.path.strip("/") else address.rstrip("/") + TRACES_PATH
