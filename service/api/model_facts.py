"""Answers that follow from a model's file alone: made when first asked for, kept as long as the model is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
from starlette.types import Receive, Scope, Send

from service.api.context import ServiceContext
from service.api.endpoint import respond
from service.artifact.datatypes import DATATYPES
from service.artifact.manifest import Gate, Parity, Profile, SampleInput
from service.artifact.runtime import Tensor
from service.artifact.sample_rows import to_input_row
from service.inference_types import Array
from service.registry.model import Model

FindModel = Callable[[ServiceContext, Mapping[str, str]], Model]
RenderFacts = Callable[[Model], bytes]


def find_model(parts: ServiceContext, params: Mapping[str, str]) -> Model:
    """The model of an address, whatever it has."""
    return parts.shelf.find(params["model"], params.get("version"))


class StaticModelEndpoint:
    """Answers with what `tell` makes of the model in a thread, since much of it takes its time."""

    def __init__(self, parts: ServiceContext, tell: RenderFacts, find: FindModel = find_model) -> None:
        self._parts, self._tell, self._find = parts, tell, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._find(self._parts, scope["path_params"])
        body = model.cached_answers.get(self._tell)
        if body is None:
            body = model.cached_answers[self._tell] = await asyncio.to_thread(self._tell, model)
        await respond(send, body, held=self._parts.held)


def certificate_json(model: Model) -> bytes:
    """The same fields for every model; those that only a manifest tells are empty where there is none."""
    manifest = model.manifest
    told: dict[str, Any] = {
        "model_name": model.name,
        "model_version": str(model.version),
        "verified": manifest is not None,
        "bytes": model.bytes,
        "digest": model.digest,
        "batched": model.batcher.batched,
        "distribution": _distribution(model),
        "precision": None,
        "source": None,
        "labels": model.labels,
        "alphabet": "",
        "batch_coupled": False,
        "ranges": {},
        "samples": 0,
        "gates": len(model.gates),
        "parity": None,
        "variant": None,
        "tools": {},
        "weights": None,
    }
    if manifest is not None:
        told |= manifest.model_dump(
            include={"precision", "source", "alphabet", "batch_coupled", "variant", "tools", "weights"}
        )
        told["ranges"] = {one.input: {"low": one.low, "high": one.high} for one in manifest.ranges}
        told["samples"] = len(manifest.samples)
        told["parity"] = _parity(manifest.parity)
    return orjson.dumps(told)


def _parity(parity: Parity) -> dict[str, Any]:
    worst = parity.worst
    return parity.model_dump() | {"worst": None if worst is None else worst.name}


def _distribution(model: Model) -> str | None:
    """What the first public output holds, where it holds classes."""
    if model.distribution is None:
        return None
    return "probabilities" if model.distribution else "logits"


def samples_json(model: Model) -> bytes:
    """Each sample with its inputs, which may be posted as they are."""
    manifest, inputs = model.manifest, model.signature.inputs
    told = {
        "model_name": model.name,
        "model_version": str(model.version),
        "samples": [
            {"label": sample.label, "inputs": [_sample_entry(one, inputs[one.name]) for one in sample.inputs]}
            for sample in (() if manifest is None else manifest.samples)
        ],
    }
    return orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY)


def _sample_entry(one: SampleInput, tensor: Tensor) -> dict[str, Any]:
    """An input as an infer request has it."""
    row = to_input_row(one, tensor)
    datatype = DATATYPES[tensor.dtype]
    return {"name": one.name, "shape": row.shape, "datatype": datatype, "data": row.reshape(-1)}


def gate_profile_json(model: Model) -> bytes:
    """Gates with their biases, how they behaved on the rows of the export, and the lesion curve."""
    manifest = model.manifest
    about = {"model_name": model.name, "model_version": str(model.version)}
    told = {} if manifest is None else manifest.model_dump(include={"gates", "lesion"})
    if manifest is not None and manifest.profile is not None:
        told["profile"] = _profile_record(manifest.profile)
    else:
        told["profile"] = None
    biases = {gate.name: bias_of(gate, model.biases) for gate in model.gates}
    return orjson.dumps(about | told | {"biases": biases}, option=orjson.OPT_SERIALIZE_NUMPY)


def bias_of(gate: Gate, biases: Mapping[str, Array]) -> Array | None:
    """The bias of each unit, in the sense of T: the higher, the more open; None where nobody may move it."""
    if not gate.levers:
        return None
    own = gate.levers[0]
    return (own.sign * biases[own.tensor].reshape(-1)[own.start : own.stop]).astype(np.float32)


def _profile_record(gate_profile_json: Profile) -> dict[str, object]:
    """A layer at a time, between which other threads may run: of hundreds of wide ones it takes long."""
    told: dict[str, object] = gate_profile_json.model_dump(exclude={"layers"})
    return told | {
        "layers": [orjson.Fragment(layer.model_dump_json().encode()) for layer in gate_profile_json.layers]
    }
