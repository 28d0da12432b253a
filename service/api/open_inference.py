"""The routes of the Open Inference Protocol: inference, metadata, readiness, configuration and statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Response

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint, add_model_routes
from service.api.inference import InferenceCall, expect_bytes
from service.api.openapi.operation import (
    BINARY_DATA,
    DIGIT_TENSOR,
    ModelName,
    ModelVersion,
    example,
    operation,
)
from service.artifact.datatypes import DATATYPES
from service.artifact.runtime import Tensor
from service.http.response import ResponseBody
from service.http.router import Router
from service.protocol.infer_response import JsonAnswers, encode_infer
from service.registry.model import Model
from service.telemetry.counters import Snapshot, merge_snapshots
from service.version import VERSION


def model_stats(
    snapshots: Iterable[Mapping[str, Any]], name: str | None = None, version: int | None = None
) -> list[dict[str, Any]]:
    """One entry per version: of all models, of the model `name`, or only of its `version`."""
    merged = merge_snapshots(snapshot["counters"] for snapshot in snapshots)
    return [
        _stats_entry(model, number, counts)
        for model, versions in sorted(merged["models"].items())
        if name in (None, model)
        for number, counts in sorted(versions.items(), key=lambda item: int(item[0]))
        if version is None or number == str(version)
    ]


def _stats_entry(name: str, version: str, counts: Snapshot) -> dict[str, Any]:
    answered = sum(counts["seconds"]["counts"])
    failed = counts["failed"].values()
    return {
        "name": name,
        "version": version,
        "last_inference": counts["last"],
        "inference_count": counts["rows"],
        "execution_count": sum(counts["run"]["counts"]),
        "inference_stats": {
            "success": _count_and_ns(answered, counts["seconds"]["total"]),
            "fail": _count_and_ns(sum(count for count, _ in failed), sum(ns for _, ns in failed)),
            "queue": _count_and_ns(answered, counts["queue"]["total"]),
            "compute_input": _count_and_ns(answered, counts["decode_ns"]),
            "compute_infer": _count_and_ns(answered, counts["infer_ns"]),
            "compute_output": _count_and_ns(answered, counts["encode_ns"]),
            # the service caches no responses
            "cache_hit": _count_and_ns(0, 0),
            "cache_miss": _count_and_ns(0, 0),
        },
        "batch_stats": [
            {
                "batch_size": int(rows),
                # input and output count the requests in batches of this size, compute_infer counts the runs
                "compute_input": _count_and_ns(requests, decode_ns),
                "compute_infer": _count_and_ns(runs, run_ns),
                "compute_output": _count_and_ns(requests, encode_ns),
            }
            for rows, (runs, run_ns, requests, decode_ns, encode_ns) in sorted(
                counts["sizes"].items(), key=lambda item: int(item[0])
            )
        ],
    }


def _count_and_ns(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


# the group of these routes on the page /docs
TAG = "Open Inference Protocol"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_repository",
    "model_configuration",
    "parameters",
    "statistics",
)

INFER = operation(
    "InferAnswer",
    "Run a model",
    TAG,
    "Takes tensors and returns tensors." + BINARY_DATA,
    body="InferRequest",
    binary=True,
    runs_model=True,
    examples={
        "digit": example("One handwritten digit", DIGIT_TENSOR),
        "classes": example(
            "Its three most likely classes",
            DIGIT_TENSOR | {"outputs": [{"name": "output", "parameters": {"classification": 3}}]},
        ),
        "gate": example(
            "A gate, requested by name", DIGIT_TENSOR | {"outputs": [{"name": "layer00.transform_gate"}]}
        ),
    },
)


class InferEndpoint(ModelEndpoint):
    """`POST …/infer`: tensors in, tensors out, as JSON or binary."""

    async def answer(self, call: InferenceCall) -> ResponseBody:
        model, form = call.model, call.inference.form
        if form.plan is None:
            answers = JsonAnswers.of(model.name, model.version, form, model.signature)
            form.plan = call.plan(() if answers else form.output_names, answers)
        await call.start(form.plan)
        result = call.result()
        if form.plan.reader is None:
            return encode_infer(model.name, model.version, form, result, model.labels)
        return expect_bytes(result.reader_result), None


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the infer routes, for the newest version of a model and for a named one."""
    add_model_routes(router, "POST", "/v2/models/{model}/infer", InferEndpoint(context), "infer", INFER)


def fastapi_routes(context: ServiceContext) -> APIRouter:
    """The routes that run no model: metadata, readiness, configuration and statistics."""
    routes = APIRouter(prefix="/v2", tags=[TAG], dependencies=[Depends(context.auth.require("api"))])
    registry = context.registry

    @routes.get("", summary="The server and what it can do", openapi_extra=operation("Server"))
    @routes.get("/", include_in_schema=False)
    async def server() -> Any:
        return {"name": "turnpike", "version": VERSION, "extensions": EXTENSIONS}

    @routes.get("/models", summary="The names of all models", openapi_extra=operation("Models"))
    async def models() -> Any:
        return {"models": registry.names()}

    @routes.get("/models/stats", summary="Statistics of all models", openapi_extra=operation("Statistics"))
    async def all_stats() -> Any:
        return {"model_stats": model_stats(await context.supervisor.ask("snapshots"))}

    def metadata_of(model: Model) -> Any:
        return {
            "name": model.name,
            "versions": [str(version) for version in registry.versions(model.name)],
            "platform": "onnx_onnxv1",
            "inputs": [_tensor_metadata(tensor) for tensor in model.signature.inputs.values()],
            "outputs": [_tensor_metadata(tensor) for tensor in model.signature.outputs.values()],
        }

    @routes.get("/models/{model}", summary="A model's inputs and outputs", openapi_extra=operation("Model"))
    async def metadata(model: ModelName) -> Any:
        return metadata_of(registry.find(model))

    @routes.get(
        "/models/{model}/versions/{version}",
        summary="The same, for one version",
        openapi_extra=operation("Model"),
    )
    async def version_metadata(model: ModelName, version: ModelVersion) -> Any:
        return metadata_of(registry.find(model, version))

    def readiness_of(model: str, version: str | None) -> Response:
        # raises a 404 if there is no such model
        is_ready = registry.is_ready(model, version)
        return Response(
            orjson.dumps({"name": model, "ready": is_ready}),
            status_code=200 if is_ready else 503,
            media_type="application/json",
        )

    @routes.get(
        "/models/{model}/ready",
        summary="Whether a model is served now",
        openapi_extra=operation("Ready", unready_response=True),
    )
    async def model_ready(model: ModelName) -> Response:
        return readiness_of(model, None)

    @routes.get(
        "/models/{model}/versions/{version}/ready",
        summary="The same, for one version",
        openapi_extra=operation("Ready", unready_response=True),
    )
    async def version_ready(model: ModelName, version: ModelVersion) -> Response:
        return readiness_of(model, version)

    @routes.get(
        "/models/{model}/config",
        summary="A model's configuration, in Triton's format",
        openapi_extra=operation("Config"),
    )
    async def config(model: ModelName) -> Any:
        return configuration(registry.find(model), context)

    @routes.get(
        "/models/{model}/versions/{version}/config",
        summary="The same, for one version",
        openapi_extra=operation("Config"),
    )
    async def version_config(model: ModelName, version: ModelVersion) -> Any:
        return configuration(registry.find(model, version), context)

    @routes.get(
        "/models/{model}/stats",
        summary="A model's statistics, over all workers",
        openapi_extra=operation("Statistics"),
    )
    async def stats(model: ModelName) -> Any:
        registry.find(model)
        return {"model_stats": model_stats(await context.supervisor.ask("snapshots"), model)}

    @routes.get(
        "/models/{model}/versions/{version}/stats",
        summary="The same, for one version",
        openapi_extra=operation("Statistics"),
    )
    async def version_stats(model: ModelName, version: ModelVersion) -> Any:
        number = registry.find(model, version).version
        return {"model_stats": model_stats(await context.supervisor.ask("snapshots"), model, number)}

    return routes


def configuration(model: Model, context: ServiceContext) -> dict[str, Any]:
    """The configuration of a model in Triton's format, which load tools read."""
    settings, signature = context.settings, model.signature
    batched = model.batcher.runner.batched
    return {
        "name": model.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "version_policy": {"specific": {"versions": context.registry.versions(model.name)}},
        "max_batch_size": settings.max_batch if batched else 0,
        "input": [_tensor_config(tensor, batched) for tensor in signature.inputs.values()],
        "output": [
            _tensor_config(tensor, batched) | {"label_filename": ""} for tensor in signature.outputs.values()
        ],
        "dynamic_batching": {
            "preferred_batch_size": [settings.max_batch],
            "max_queue_delay_microseconds": round(settings.max_delay_ms * 1000),
            "preserve_ordering": True,
        }
        if batched
        else None,
        "instance_group": [
            {
                "name": model.name,
                "kind": "KIND_GPU" if settings.device == "cuda" else "KIND_CPU",
                "count": settings.workers,
                "gpus": [0] if settings.device == "cuda" else [],
            }
        ],
        "default_model_filename": "model.onnx",
        "model_transaction_policy": {"decoupled": False},
        "response_cache": {"enable": False},
        "parameters": {},
    }


def _tensor_metadata(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": _shape(tensor)}


def _tensor_config(tensor: Tensor, batched: bool) -> dict[str, Any]:
    """A tensor in Triton's format. The batch axis is left out of the dimensions of a batched model."""
    shape = _shape(tensor)
    return {
        "name": tensor.name,
        "data_type": f"TYPE_{DATATYPES[tensor.dtype]}",
        "dims": shape[1:] if batched else shape,
    }


def _shape(tensor: Tensor) -> list[int]:
    return [dim if isinstance(dim, int) else -1 for dim in tensor.dims]
