"""OpenTelemetry spans of gRPC calls, by its semantic conventions."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.support.grpc_worker import INFERENCE, grpc_worker, infer_request
from turnpike.service.requests.tracing import Tracing

ROWS = np.zeros((1, 1, 8, 8), np.float32)
INFER = f"{INFERENCE}/ModelInfer"


async def spans_of_calls() -> list[Any]:
    """The spans of some calls, in the order in which the calls ended, without those of queues and runs."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    async with grpc_worker() as worker:
        worker.app.observer._tracing = Tracing(lambda: provider)
        infer = worker.method(INFERENCE, "ModelInfer")
        absent = infer_request(ROWS, name="absent")
        await infer(infer_request(ROWS))
        await worker.refused(infer(absent))
        await worker.refused(worker.channel.unary_unary(f"/{INFERENCE}/Other")(b""))
        stream = worker.method(INFERENCE, "ModelStreamInfer")
        assert len([answer async for answer in stream(iter([absent]))]) == 1
        call = stream()
        await call.write(infer_request(ROWS))
        await call.read()
        call.cancel()
        async with asyncio.timeout(10):
            while worker.app.context.counters.in_flight:
                await asyncio.sleep(0.001)
    return [span for span in exporter.get_finished_spans() if span.kind.name == "SERVER"]


def test_calls_are_named_and_labelled_by_the_conventions() -> None:
    spans = asyncio.run(spans_of_calls())
    found = [(span.name, span.attributes["rpc.grpc.status_code"]) for span in spans]
    stream = f"{INFERENCE}/ModelStreamInfer"
    assert found == [
        (INFER, 0),
        (INFER, 5),
        ("unknown", 12),
        (INFER, 5),
        (stream, 0),
        (INFER, 0),
        (stream, 1),
    ]
    # only errors of the server are errors of the span
    assert [span.status.status_code.name for span in spans] == ["UNSET"] * 2 + ["ERROR"] + ["UNSET"] * 4
    attributes = dict(spans[0].attributes)
    assert attributes.pop("turnpike.request_id")
    assert attributes == {
        "rpc.system": "grpc",
        "rpc.service": INFERENCE,
        "rpc.method": "ModelInfer",
        "rpc.grpc.status_code": 0,
        "turnpike.model": "digits-10",
        "turnpike.version": 1,
    }
    assert "rpc.method" not in spans[2].attributes
