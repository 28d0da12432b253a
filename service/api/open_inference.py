"""The routes of the Open Inference Protocol: inference, metadata, readiness and configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from turnpike.common.datatypes import DATATYPES
from turnpike.common.distribution import VERSION
from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import ModelEndpoint, add_model_routes
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.model_facts import find_model
from turnpike.service.api.openapi.operation import BINARY_DATA, DIGIT_TENSOR, example, operation
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.infer_response import JsonAnswers, encode_infer
from turnpike.service.errors import expect_finite
from turnpike.service.registry.model import Model
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, ResponseBody, UncompressedResponse
from turnpike.service.requests.router import Endpoint, Router

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


class InferEndpoint(ModelEndpoint[Request]):
    """`POST …/infer`: tensors in, tensors out, as JSON or binary."""

    sends_events = True

    async def answer(self, call: InferenceCall, request: Request) -> ResponseBody:
        form = call.inference.form
        if form.plan is None:
            model = call.model
            answers = JsonAnswers.of(model.name, model.version, form, model.signature)
            form.plan = call.plan(() if answers else form.output_names, answers)
        await call.start(form.plan)
        result = call.result()
        if form.plan.processor is None:
            return encode_infer(call.infer_answer(result.arrays))
        return expect_finite(result.processed), None


class JsonEndpoint:
    """Responds with what `describe` returns for the names in the path of a request."""

    def __init__(self, describe: Callable[[Mapping[str, str]], Any]) -> None:
        self._describe = describe

    async def __call__(self, request: Request) -> Response:
        return UncompressedResponse(orjson.dumps(self._describe(request.path_params)))


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
        return server_metadata()

    def models(_: Mapping[str, str]) -> Any:
        return {"models": registry.names()}

    def metadata(params: Mapping[str, str]) -> Any:
        return model_metadata(find_model(context, params), registry)

    def config(params: Mapping[str, str]) -> Any:
        return configuration(find_model(context, params), context)

    server_routes: Iterable[tuple[str, Endpoint, str, Mapping[str, Any]]] = (
        ("/v2", JsonEndpoint(server), "server", SERVER),
        ("/v2/", JsonEndpoint(server), "server", {}),
        ("/v2/models", JsonEndpoint(models), "models", MODELS),
    )
    for path, endpoint, name, declared in server_routes:
        router.add("GET", path, "api", endpoint, name, declared)
    add_model_routes(router, "POST", "/v2/models/{model}/infer", InferEndpoint(context), "infer", INFER)
    model_routes: Iterable[tuple[str, Endpoint, str, Mapping[str, Any]]] = (
        ("", JsonEndpoint(metadata), "metadata", METADATA),
        ("/ready", ReadyEndpoint(registry), "model_ready", READY),
        ("/config", JsonEndpoint(config), "config", CONFIG),
    )
    for path, endpoint, name, declared in model_routes:
        add_model_routes(router, "GET", f"/v2/models/{{model}}{path}", endpoint, name, declared)


def server_metadata() -> dict[str, Any]:
    """The name and version of the server, and the extensions of the protocol that it has."""
    return {"name": "turnpike", "version": VERSION, "extensions": EXTENSIONS}


def model_metadata(model: Model, registry: ModelRegistry) -> dict[str, Any]:
    """The inputs and outputs of a model, and the versions that are served."""
    return {
        "name": model.name,
        "versions": [str(version) for version in registry.versions(model.name)],
        "platform": "onnx_onnxv1",
        "inputs": [
            _tensor_metadata(tensor) | _text_metadata(tensor, model.signature)
            for tensor in model.signature.inputs.values()
        ],
        "outputs": [_tensor_metadata(tensor) for tensor in model.signature.outputs.values()],
    }


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
        "parameters": {}
        if signature.text is None
        else {"text_input": {"string_value": signature.text.input}},
    }


def _tensor_metadata(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": _shape(tensor)}


def _text_metadata(tensor: Tensor, signature: Signature) -> dict[str, Any]:
    """What says that an input takes texts too; nothing for others.

    A second entry with the same name and the datatype BYTES would make clients send both.
    """
    text = signature.text
    return {"parameters": {"text": True}} if text is not None and text.input == tensor.name else {}


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
