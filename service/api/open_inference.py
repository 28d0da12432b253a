"""The routes of the Open Inference Protocol: inference, metadata, readiness, configuration and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint, add_model_routes
from service.api.inference import InferenceCall, expect_bytes
from service.api.model_facts import find_model
from service.api.openapi.operation import BINARY_DATA, DIGIT_TENSOR, example, operation
from service.artifact.datatypes import DATATYPES
from service.artifact.runtime import Tensor
from service.http.request import Request
from service.http.response import Response, ResponseBody
from service.http.router import Endpoint, Router
from service.protocol.infer_response import JsonAnswers, encode_infer
from service.registry.model import Model
from service.registry.registry import ModelRegistry
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


SERVER = operation("Server", "The server and what it can do", TAG)
MODELS = operation("Models", "The names of all models", TAG)
METADATA = operation("Model", "A model's inputs and outputs", TAG)
READY = operation("Ready", "Whether a model is served now", TAG, unready_response=True)
CONFIG = operation("Config", "A model's configuration, in Triton's format", TAG)
ALL_STATISTICS = operation("Statistics", "Statistics of all models, over all workers", TAG)
STATISTICS = operation("Statistics", "A model's statistics, over all workers", TAG)


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


class JsonEndpoint:
    """Responds with what `describe` returns for the names in the path of a request."""

    def __init__(self, describe: Callable[[Mapping[str, str]], Any]) -> None:
        self._describe = describe

    async def __call__(self, request: Request) -> Response:
        return Response(orjson.dumps(self._describe(request.path_params)))


class StatisticsEndpoint:
    """Responds with the statistics, over all workers, of what the path of a request names."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    async def __call__(self, request: Request) -> Response:
        params = request.path_params
        name, version = params.get("model"), None
        if name is not None:
            model = self._context.registry.find(name, params.get("version"))
            version = model.version if "version" in params else None
        snapshots = await self._context.supervisor.ask("snapshots")
        return Response(orjson.dumps({"model_stats": model_stats(snapshots, name, version)}))


class ReadyEndpoint:
    """Whether a model is served now: 200 or 503, and 404 if there is no such model."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def __call__(self, request: Request) -> Response:
        name = request.path_params["model"]
        is_ready = self._registry.is_ready(name, request.path_params.get("version"))
        return Response(orjson.dumps({"name": name, "ready": is_ready}), status=200 if is_ready else 503)


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes. Those of a model exist for its newest version and for a named one."""
    registry = context.registry

    def server(_: Mapping[str, str]) -> Any:
        return {"name": "turnpike", "version": VERSION, "extensions": EXTENSIONS}

    def models(_: Mapping[str, str]) -> Any:
        return {"models": registry.names()}

    def metadata(params: Mapping[str, str]) -> Any:
        model = find_model(context, params)
        return {
            "name": model.name,
            "versions": [str(version) for version in registry.versions(model.name)],
            "platform": "onnx_onnxv1",
            "inputs": [_tensor_metadata(tensor) for tensor in model.signature.inputs.values()],
            "outputs": [_tensor_metadata(tensor) for tensor in model.signature.outputs.values()],
        }

    def config(params: Mapping[str, str]) -> Any:
        return configuration(find_model(context, params), context)

    statistics = StatisticsEndpoint(context)
    server_routes: Iterable[tuple[str, Endpoint, str, Mapping[str, Any]]] = (
        ("/v2", JsonEndpoint(server), "server", SERVER),
        ("/v2/", JsonEndpoint(server), "server", {}),
        ("/v2/models", JsonEndpoint(models), "models", MODELS),
        ("/v2/models/stats", statistics, "all_stats", ALL_STATISTICS),
    )
    for path, endpoint, name, declared in server_routes:
        router.add("GET", path, "api", endpoint, name, declared)
    add_model_routes(router, "POST", "/v2/models/{model}/infer", InferEndpoint(context), "infer", INFER)
    model_routes: Iterable[tuple[str, Endpoint, str, Mapping[str, Any]]] = (
        ("", JsonEndpoint(metadata), "metadata", METADATA),
        ("/ready", ReadyEndpoint(registry), "model_ready", READY),
        ("/config", JsonEndpoint(config), "config", CONFIG),
        ("/stats", statistics, "stats", STATISTICS),
    )
    for path, endpoint, name, declared in model_routes:
        add_model_routes(router, "GET", f"/v2/models/{{model}}{path}", endpoint, name, declared)


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
