"""The routes that look into a model: gates read, moved, as they were and as they are; proof and samples."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint, respond
from service.api.inference import Content, InferenceCall, merge_json, wrap_json
from service.api.model_facts import StaticModelEndpoint, certificate_json, gate_profile_json, samples_json
from service.config.cpus import threads_per_worker
from service.errors import NotFiniteError, NotFoundError, RequestError
from service.gates.lesions import (
    LESION_KEYS,
    LesionEffect,
    LesionRequest,
    curve_layers,
    gates_by_layer,
    lesion_effect,
    parse_lesion_request,
)
from service.gates.query import (
    GateQuery,
    OutputSizes,
    block_names,
    check_response_size,
    parse_gate_query,
    requested_tensors,
)
from service.gates.reader import GateReader, GateSummary
from service.inference_types import Array, InferenceResult
from service.protocol.infer_response import assemble, encode_infer, encode_tensors
from service.registry.model import Model


class GatedEndpoint(ModelEndpoint):
    """An endpoint that runs such a model."""

    def find(self, params: Mapping[str, str]) -> Model:
        return find_model_with_gates(self.parts, params)


def find_model_with_gates(parts: ServiceContext, params: Mapping[str, str]) -> Model:
    """The model of an address, where it has gates."""
    model = parts.shelf.find(params["model"], params.get("version"))
    if not model.gates:
        raise NotFoundError(f"model {model.name!r} has no gates that are known of")
    return model


# so many bytes of gates are read in a thread, since they would hold up other requests
MANY_BYTES = 2**19
# more models than are served at any one time
MOST_PREPARED = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the requests to one model have in common; `blocks` are the outputs of its layers."""

    reader: GateReader
    blocks: tuple[str, ...]
    sizes: OutputSizes
    sizes_with_blocks: OutputSizes


class GatesEndpoint(GatedEndpoint):
    """Reads the gates of the caller's own rows."""

    def __init__(self, parts: ServiceContext) -> None:
        super().__init__(parts)
        self._prepared: dict[str, Prepared] = {}

    async def content(self, inquiry: InferenceCall) -> Content:
        model, inference = inquiry.model, inquiry.inference
        wish = parse_gate_query(inquiry.course.query, inference.parameters)
        if wish.binary:
            outputs = tuple(replace(output, binary=True) for output in inference.outputs)
            inquiry.inference = inference = replace(inference, outputs=outputs)
        prepared = self._of(model)
        reader = prepared.reader
        read = reader.output_names
        if wish.blocks:
            if not prepared.blocks:
                raise RequestError(
                    "blocks: expected a model that has its layers' outputs, and this one has not"
                )
            read += prepared.blocks
        limit = self.parts.settings.max_gates
        sizes = prepared.sizes_with_blocks if wish.blocks else prepared.sizes
        size = sizes.total_bytes(inference)
        check_response_size(wish, size, limit)
        if wish.detail == "summary" and not wish.blocks and sizes.is_exact and size < MANY_BYTES:
            return _summary(inquiry, await inquiry.run(inference.output_names, reader=reader))
        arrays = await inquiry.by_name(tuple(dict.fromkeys((*inference.output_names, *read))))
        # shapes that only a run could tell
        size = sum([arrays[name].nbytes for name in read])
        check_response_size(wish, size, limit)
        if size < MANY_BYTES:
            return _content(inquiry, wish, reader, arrays)
        return await asyncio.to_thread(_content, inquiry, wish, reader, arrays)

    def _of(self, model: Model) -> Prepared:
        prepared = self._prepared.get(model.digest)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            gate_profile_json = None if model.manifest is None else model.manifest.profile
            reader = GateReader(
                model.gates, model.signature, gate_profile_json, threads_per_worker(self.parts.settings)
            )
            blocks = block_names(model.gates)
            prepared = self._prepared[model.digest] = Prepared(
                reader,
                blocks,
                OutputSizes(reader.output_names, model.signature),
                OutputSizes((*reader.output_names, *blocks), model.signature),
            )
        return prepared


def _summary(inquiry: InferenceCall, answer: InferenceResult) -> Content:
    """The answer where the gates were read with those of all others in the run."""
    model = inquiry.model
    given = encode_infer(model.name, model.version, inquiry.inference, answer, model.labels)
    return _with(given, answer.reader_result)


def _content(
    inquiry: InferenceCall, wish: GateQuery, reader: GateReader, arrays: Mapping[str, Array]
) -> Content:
    rows = inquiry.inference.rows
    (reading,) = reader.read(arrays, rows)
    content = _with(inquiry.as_infer(arrays), reading)
    pairs = requested_tensors(wish, inquiry.model.gates, reader.output_names, arrays, rows)
    entries, tail = encode_tensors(pairs, binary=wish.binary)
    return merge_json(content, assemble({"tensors": entries}, tail)) if entries else content


def _with(content: Content, reading: GateSummary) -> Content:
    """An answer, and in it what was read of the gates."""
    if isinstance(reading, NotFiniteError):
        raise reading
    if content[1] is None:
        return b"%b,%b}" % (content[0][:-1], reading), None
    return merge_json(content, (b"{%b}" % reading, None))


class LesionEndpoint(GatedEndpoint):
    """Runs the caller's own rows with gates closed, opened or shifted."""

    extra = LESION_KEYS

    async def content(self, inquiry: InferenceCall) -> Content:
        model, inference = inquiry.model, inquiry.inference
        asked = parse_lesion_request(inference.parameters, model.gates)
        return await (_curve(inquiry) if asked.curve else _lesion(inquiry, asked))


async def _lesion(inquiry: InferenceCall, asked: LesionRequest) -> Content:
    model, inference = inquiry.model, inquiry.inference
    moved = asked.bias_overrides(model.biases)
    first = next(iter(model.signature.outputs))
    names = tuple(dict.fromkeys((*inference.output_names, first)))
    before = await inquiry.by_name(names, unbatched=True)
    after = await inquiry.by_name(names, moved, unbatched=True)
    told: dict[str, Any] = {"rows": inference.rows, **asked.to_json(model.gates)}
    if tells_classes(model, before[first]):
        changed = _effect(model, before[first], after[first])
        if not changed.is_finite:
            raise NotFiniteError(
                f"lesion: expected numbers to compare, got NaN or Inf in {first!r}, "
                "which JSON cannot say; without these gates the network may give none"
            )
        labels = model.labels if len(model.labels) == before[first].shape[1] else ()
        told |= {**changed.summary(), "by_row": changed.by_row(labels)}
    more = merge_json((orjson.dumps({"lesion": told}), None), wrap_json("lesioned", inquiry.as_infer(after)))
    return merge_json(inquiry.as_infer(before), more)


async def _curve(inquiry: InferenceCall) -> Content:
    model, inference = inquiry.model, inquiry.inference
    todo = curve_layers(model.gates, inference.rows)
    first = next(iter(model.signature.outputs))
    before = await inquiry.by_name(tuple(dict.fromkeys((*inference.output_names, first))), unbatched=True)
    if not tells_classes(model, before[first]):
        raise RequestError(f"curve: expected a model whose output tells classes, and {first!r} tells none")
    entries = []
    for layer, gates in todo:
        after = await inquiry.by_name(
            (first,), LesionRequest(closed=gates).bias_overrides(model.biases), unbatched=True
        )
        told = _effect(model, before[first], after[first]).summary()
        entries.append({"layer": layer, "gates": [gate.name for gate in gates], **told})
    skipped = sorted(gates_by_layer(model.gates).keys() - {layer for layer, _ in todo})
    curve = {"rows": inference.rows, "layers": entries, "skipped": skipped}
    return merge_json(inquiry.as_infer(before), (orjson.dumps({"curve": curve}), None))


def tells_classes(model: Model, output: Array) -> bool:
    """Whether an output is one value a class, row by row."""
    return model.distribution is not None and output.ndim == 2 and output.shape[1] > 1


def _effect(model: Model, before: Array, after: Array) -> LesionEffect:
    return lesion_effect(before, after, distribution=bool(model.distribution))


class DriftEndpoint:
    """`GET …/gates/drift`: live traffic of all workers against the profile."""

    def __init__(self, parts: ServiceContext) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = find_model_with_gates(self._parts, scope["path_params"])
        if model.drift is None:
            raise NotFoundError(
                f"model {model.name!r} has no profile to tell drift from: it was exported without rows"
            )
        version = str(model.version)
        snapshots = [one["drift"] for one in await self._parts.control.ask("snapshots")]
        seen = [one[model.name][version] for one in snapshots if version in one.get(model.name, {})]
        about = {"model_name": model.name, "model_version": version}
        await respond(send, orjson.dumps(about | model.drift.merge(seen).to_json()))


def routes(parts: ServiceContext) -> list[Route]:
    """Each with and without a version in its address."""
    found = []
    for path, method, endpoint in (
        ("gates", "POST", GatesEndpoint(parts)),
        ("lesion", "POST", LesionEndpoint(parts)),
        ("gates/profile", "GET", StaticModelEndpoint(parts, gate_profile_json, find_model_with_gates)),
        ("gates/drift", "GET", DriftEndpoint(parts)),
        ("certificate", "GET", StaticModelEndpoint(parts, certificate_json)),
        ("samples", "GET", StaticModelEndpoint(parts, samples_json)),
    ):
        guarded = parts.access.guard("api", endpoint)
        name = path.replace("/", "_")
        for version, suffix in (("", ""), ("/versions/{version}", "_version")):
            address = f"/v2/models/{{model}}{version}/{path}"
            found.append(Route(address, guarded, methods=[method], name=name + suffix))
    return found
