"""Routes that return facts about a model: certificate, samples, gate profile, and drift of its gates.

All but the drift depend on the model's file alone. They are rendered at the first request and kept as long as
the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from turnpike.common.datatypes import DATATYPES
from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import add_model_routes
from turnpike.service.api.gates import GATES_TAG, find_model_with_gates
from turnpike.service.api.openapi.operation import operation
from turnpike.service.artifact.manifest import Gate, Profile, SampleInput
from turnpike.service.artifact.proof_records import Parity
from turnpike.service.artifact.sample_rows import to_input_row
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.verdict_text import identity_text, is_proved
from turnpike.service.errors import NotFoundError
from turnpike.service.inference_types import Array
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Endpoint, Router

# the group of the routes of the model file on the page /docs
FILE_TAG = "Model file"

FindModel = Callable[[ServiceContext, Mapping[str, str]], Model]
Render = Callable[[Model], bytes]


def find_model(context: ServiceContext, params: Mapping[str, str]) -> Model:
    """The model that the path of a route names."""
    return context.registry.find(params["model"], params.get("version"))


class StaticModelEndpoint:
    """Responds with `render(model)`, which is called in a thread because it takes milliseconds to run."""

    def __init__(self, context: ServiceContext, render: Render, find: FindModel = find_model) -> None:
        self._context, self._render, self._find = context, render, find

    async def __call__(self, request: Request) -> Response:
        model = self._find(self._context, request.path_params)
        body = model.cached_answers.get(self._render)
        if body is None:
            body = model.cached_answers[self._render] = await asyncio.to_thread(self._render, model)
        return Response(body)


CERTIFICATE = operation("Certificate", "What was proved about a model's file, and its source", FILE_TAG)


def certificate_json(model: Model) -> bytes:
    """The certificate. Every model has the same fields; those of the manifest are empty without one."""
    manifest = model.manifest
    record: dict[str, Any] = {
        "model_name": model.name,
        "model_version": str(model.version),
        "verified": manifest is not None,
        "bytes": model.bytes,
        "digest": model.digest,
        "batched": model.batcher.runner.batched,
        "distribution": _distribution(model),
        "precision": None,
        "device": model.runtime.device,
        "device_precision": model.runtime.precision,
        "source": None,
        "labels": model.labels,
        "alphabet": "",
        "text": None,
        "picture": None,
        "features": [],
        "task": "classes",
        "target": "",
        "interval": None,
        "batch_coupled": False,
        "ranges": {},
        "samples": 0,
        "gates": len(model.gates),
        "proved": False,
        "verdict": None,
        "identity": None,
        "parity": None,
        "variant": None,
        "compression": None,
        "tools": {},
        "weights": None,
        "random_weights": False,
    }
    if manifest is not None:
        record |= manifest.model_dump(
            include={
                "precision",
                "source",
                "alphabet",
                "text",
                "picture",
                "features",
                "task",
                "target",
                "interval",
                "batch_coupled",
                "variant",
                "compression",
                "identity",
                "tools",
                "weights",
                "random_weights",
            }
        )
        record["ranges"] = {
            input_range.input: {"low": input_range.low, "high": input_range.high}
            for input_range in manifest.ranges
        }
        record["samples"] = len(manifest.samples)
        record["proved"] = is_proved(manifest)
        record["verdict"] = identity_text(manifest)
        record["parity"] = _parity(manifest.parity)
    # times faster are by the number of rows
    return orjson.dumps(record, option=orjson.OPT_NON_STR_KEYS)


def _parity(parity: Parity) -> dict[str, Any]:
    worst = parity.worst
    return parity.model_dump() | {"worst": None if worst is None else worst.name}


def _distribution(model: Model) -> str | None:
    """What the first public output contains, if it has one value per class."""
    if model.distribution is None:
        return None
    return "probabilities" if model.distribution else "logits"


SAMPLES = operation(
    "Samples",
    "Rows to try a model with",
    FILE_TAG,
    "The inputs of each can be posted to infer unchanged, unless they have a null: a blank of a table.",
)


def samples_json(model: Model) -> bytes:
    """The sample rows. The inputs of each can be posted as an infer request, unless a cell is blank: null."""
    manifest, inputs = model.manifest, model.signature.inputs
    record = {
        "model_name": model.name,
        "model_version": str(model.version),
        "samples": [
            {
                "label": sample.label,
                "text": sample.text,
                "inputs": [_infer_input(row, inputs[row.name]) for row in sample.inputs],
            }
            for sample in (() if manifest is None else manifest.samples)
        ],
    }
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)


def _infer_input(sample_input: SampleInput, tensor: Tensor) -> dict[str, Any]:
    """An input in the form of an infer request."""
    row = to_input_row(sample_input, tensor)
    datatype = DATATYPES[tensor.dtype]
    return {"name": sample_input.name, "shape": row.shape, "datatype": datatype, "data": row.reshape(-1)}


PROFILE = operation("Profile", "Gate statistics on the rows of the export", GATES_TAG)


def gate_profile_json(model: Model) -> bytes:
    """The gates with their biases, their statistics on the rows of the export, and the lesion curve."""
    manifest = model.manifest
    model_fields = {"model_name": model.name, "model_version": str(model.version)}
    record = {} if manifest is None else manifest.model_dump(include={"gates", "lesion"})
    if manifest is not None and manifest.profile is not None:
        record["profile"] = _profile_record(manifest.profile)
    else:
        record["profile"] = None
    biases = {gate.name: bias_of(gate, model.biases) for gate in model.gates}
    return orjson.dumps(model_fields | record | {"biases": biases}, option=orjson.OPT_SERIALIZE_NUMPY)


def bias_of(gate: Gate, biases: Mapping[str, Array]) -> Array | None:
    """The bias of each unit, signed so that a higher one opens T more; None without a lever."""
    if not gate.levers:
        return None
    lever = gate.levers[0]
    return (lever.sign * biases[lever.tensor].reshape(-1)[lever.start : lever.stop]).astype(np.float32)


def _profile_record(profile: Profile) -> dict[str, object]:
    """The profile, with each layer encoded by itself so that other threads can run in between.

    A model with hundreds of wide layers takes long to encode.
    """
    record: dict[str, object] = profile.model_dump(exclude={"layers"})
    return record | {
        "layers": [orjson.Fragment(layer.model_dump_json().encode()) for layer in profile.layers]
    }


DRIFT = operation("Drift", "Gate statistics of live traffic against those of the export", GATES_TAG)


class DriftEndpoint:
    """`GET …/gates/drift`: gates on live traffic, over all workers, compared with the profile in the file."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    async def __call__(self, request: Request) -> Response:
        model = find_model_with_gates(self._context, request.path_params)
        if model.drift is None:
            raise NotFoundError(
                f"model {model.name!r} has no profile to compare with: it was exported without rows"
            )
        version = str(model.version)
        snapshots = [snapshot["drift"] for snapshot in await self._context.supervisor.ask("snapshots")]
        counts = [
            snapshot[model.name][version] for snapshot in snapshots if version in snapshot.get(model.name, {})
        ]
        names = {"model_name": model.name, "model_version": version}
        return Response(orjson.dumps(names | model.drift.merge(counts).to_json()))


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes, each with and without a version in the path."""
    endpoints: tuple[tuple[str, Endpoint, Mapping[str, Any]], ...] = (
        ("gates/profile", StaticModelEndpoint(context, gate_profile_json, find_model_with_gates), PROFILE),
        ("gates/drift", DriftEndpoint(context), DRIFT),
        ("certificate", StaticModelEndpoint(context, certificate_json), CERTIFICATE),
        ("samples", StaticModelEndpoint(context, samples_json), SAMPLES),
    )
    for path, endpoint, declared in endpoints:
        name = path.replace("/", "_")
        add_model_routes(router, "GET", f"/v2/models/{{model}}/{path}", endpoint, name, declared)
