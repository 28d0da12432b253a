"""OpenTelemetry spans of requests, in the trace of the caller."""

from __future__ import annotations

import sys
import threading
import time
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_request import FakeRequest
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.inference_types import InferenceResult
from turnpike.service.requests.request import read_trace
from turnpike.service.requests.tracing import Tracing, _collector_endpoint

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ROUTE = "/v2/models/{model}/infer"


def settings(otlp: str | None) -> Settings:
    return Settings.model_construct(otlp=otlp)


def test_without_a_collector_tracing_is_off() -> None:
    """The packages of OpenTelemetry are not needed then."""
    assert Tracing.from_settings(settings(None)) is None


@pytest.mark.parametrize("address", ["", "collector:4318", "ftp://collector", "http://", "/v1/traces"])
def test_an_invalid_collector_address_is_a_setting_error(address: str) -> None:
    """The error names the setting, an example and the value."""
    with pytest.raises(SettingError, match=r"otlp: expected an address such as .*, got") as raised:
        Tracing.from_settings(settings(address))
    assert repr(address) in str(raised.value)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://collector/own/path", "https://collector/own/path"),
    ],
)
def test_the_collector_endpoint_has_the_default_path(address: str, endpoint: str) -> None:
    """An address without a path gets the usual one."""
    assert _collector_endpoint(address) == endpoint


def test_a_missing_extra_is_a_setting_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting and the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingError, match=r"^otlp needs opentelemetry.* not installed: .*serve-otel\]"):
        Tracing.from_settings(settings("http://127.0.0.1:4318"))


@pytest.fixture
def traced() -> tuple[Tracing, Any]:
    """Tracing into memory. Skipped if the packages of OpenTelemetry are not installed."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    return Tracing(lambda: provider), exporter


def exchange(*headers: tuple[bytes, bytes]) -> FakeRequest:
    request = FakeRequest(headers=list(headers))
    request.id = "made-1"
    request.started_ns = perf_counter_ns()
    fields = request.head.fields
    if b"traceparent" in fields:
        request.trace = read_trace(fields[b"traceparent"])
    return request


def test_a_request_has_spans_for_queue_and_run(traced: tuple[Tracing, Any]) -> None:
    """The spans of queue and run follow each other within the request's, whose parent is the caller's."""
    tracing, exporter = traced
    http_request = exchange((b"traceparent", f"00-{TRACE}-{PARENT}-01".encode()))
    http_request.record_inference(
        "digits",
        3,
        InferenceResult((), queue_ns=2_000, run_ns=5_000, batch_rows=4),
        time.perf_counter_ns(),
    )
    tracing.record(http_request, ROUTE, "POST", 200, 9_000_000)
    queue, run, request = exporter.get_finished_spans()
    assert request.name == f"POST {ROUTE}"
    assert request.kind.name == "SERVER"
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    assert request.parent.is_remote
    assert request.end_time - request.start_time == 9_000_000
    assert request.status.status_code.name == "UNSET"
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "turnpike.request_id": "made-1",
        "turnpike.model": "digits",
        "turnpike.version": 3,
    }
    assert (queue.name, run.name) == ("queue", "run")
    assert queue.parent.span_id == run.parent.span_id == request.context.span_id
    assert (queue.end_time - queue.start_time, run.end_time - run.start_time) == (2_000, 5_000)
    assert request.start_time <= queue.start_time
    assert queue.end_time == run.start_time
    assert run.end_time <= request.end_time
    assert dict(run.attributes) == {"turnpike.batch": 4}


def test_the_request_gets_the_ids_of_its_span(traced: tuple[Tracing, Any]) -> None:
    """Recording sets the request's trace to that of its span, with or without a trace of the caller."""
    tracing, exporter = traced
    for http_request in (exchange(), exchange((b"traceparent", f"00-{TRACE}-{PARENT}-01".encode()))):
        tracing.record(http_request, ROUTE, "POST", 200, 1000)
        span = exporter.get_finished_spans()[-1]
        assert http_request.trace is not None
        assert http_request.trace.id == f"{span.context.trace_id:032x}"
        assert http_request.trace.span == f"{span.context.span_id:016x}"
    assert http_request.trace.id == TRACE


def test_server_errors_are_marked_in_the_span(traced: tuple[Tracing, Any]) -> None:
    """A 503 marks its span as an error, with the message that was sent. A 400 does not."""
    tracing, exporter = traced
    http_request = exchange()
    http_request.error_message = "queue: expected room, got none"
    tracing.record(http_request, ROUTE, "POST", 503, 1000)
    tracing.record(exchange(), ROUTE, "POST", 400, 1000)
    failed, refused = exporter.get_finished_spans()
    assert (failed.status.status_code.name, failed.status.description) == (
        "ERROR",
        http_request.error_message,
    )
    assert refused.status.status_code.name == "UNSET"


def test_unsampled_traces_are_not_recorded(traced: tuple[Tracing, Any]) -> None:
    """The caller's flag decides, and its trace id is kept."""
    tracing, exporter = traced
    http_request = exchange((b"traceparent", f"00-{TRACE}-{PARENT}-00".encode()))
    http_request.record_inference("digits", 3, InferenceResult((), queue_ns=2_000, run_ns=5_000), 0)
    tracing.record(http_request, ROUTE, "POST", 200, 1000)
    assert exporter.get_finished_spans() == ()
    assert http_request.trace is not None
    assert http_request.trace.id == TRACE


def test_an_unreachable_collector_does_not_block_close() -> None:
    """A worker ends even if its last spans cannot be sent."""
    pytest.importorskip("opentelemetry.trace")
    ended = threading.Event()
    provider = SimpleNamespace(get_tracer=lambda *_: object(), shutdown=lambda: ended.wait(30))
    tracing = Tracing(lambda: provider)  # type: ignore[arg-type, return-value]
    tracing._started_tracer()
    closing = threading.Thread(target=tracing.close, args=(0.05,), daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    ended.set()


def test_closing_sends_the_last_spans(traced: tuple[Tracing, Any]) -> None:
    tracing, exporter = traced
    shutdowns = []
    exporter.shutdown = lambda: shutdowns.append(True)
    tracing.close()
    assert shutdowns == []
    tracing.record(exchange(), ROUTE, "POST", 200, 1000)
    tracing.close()
    assert shutdowns == [True]


def test_a_service_that_starts_again_sends_spans_again() -> None:
    """A provider that has been shut down drops all spans, and the thread of one does not survive a fork."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporters: list[Any] = []

    def make_provider() -> Any:
        exporters.append(memory.InMemorySpanExporter())
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(exporters[-1]))
        return provider

    tracing = Tracing(make_provider)
    assert not exporters
    for _ in range(2):
        tracing.record(exchange(), ROUTE, "POST", 200, 1000)
        assert len(exporters[-1].get_finished_spans()) == 1
        tracing.close()
    assert len(exporters) == 2
