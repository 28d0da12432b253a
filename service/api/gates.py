"""Endpoints for the gates of a model (summary, lesion, profile, drift), its certificate and its samples."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint
from service.api.inference import InferenceCall, merge_json, wrap_json
from service.api.model_facts import StaticModelEndpoint, certificate_json, gate_profile_json, samples_json
from service.bounded_cache import BoundedCache
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
from service.http.request import Request
from service.http.response import Response, ResponseBody
from service.http.router import Endpoint, Router
from service.inference_types import Array
from service.protocol.infer_response import assemble, encode_infer, encode_tensors
from service.registry.model import Model

# Gates of more bytes than this are summarized in a thread. In the event loop they would delay other requests.
LARGE_GATE_BYTES = 1 << 19
# more than the models that are served at a time
MAX_PREPARED_MODELS = 256


def find_model_with_gates(context: ServiceContext, params: Mapping[str, str]) -> Model:
    """The model that the path of a request names; raises NotFoundError if it has no gates."""
    model = context.registry.find(params["model"], params.get("version"))
    if not model.gates:
        raise NotFoundError(f"model {model.name!r} has no known gates")
    return model


class GatedEndpoint(ModelEndpoint):
    """An endpoint that runs a model with gates."""

    def find_model(self, params: Mapping[str, str]) -> Model:
        return find_model_with_gates(self.context, params)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """What is computed once per model for all requests for its gates."""

    reader: GateReader
    # the outputs of its layers
    blocks: tuple[str, ...]
    sizes: OutputSizes
    sizes_with_blocks: OutputSizes


class GatesEndpoint(GatedEndpoint):
    """`POST …/gates`: the outputs, a summary of each gate, and each row's route through the layers."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._prepared: BoundedCache[str, PreparedModel] = BoundedCache(MAX_PREPARED_MODELS)

    async def answer(self, call: InferenceCall) -> ResponseBody:
        # parse the query, and check the size of the response
        query = parse_gate_query(call.request.head.query, call.inference.parameters)
        if query.binary:
            outputs = tuple(replace(output, binary=True) for output in call.inference.outputs)
            call.inference = replace(call.inference, outputs=outputs)
        inference = call.inference
        prepared = self._prepared.get(call.model.digest) or self._prepare(call.model)
        reader = prepared.reader
        gate_names = reader.output_names
        sizes = prepared.sizes
        if query.blocks:
            if not prepared.blocks:
                raise RequestError(
                    "blocks: expected a model with outputs of its layers, and this one has none"
                )
            gate_names += prepared.blocks
            sizes = prepared.sizes_with_blocks
        size = sizes.total_bytes(inference)
        check_response_size(query, size, self._max_gates)

        # a summary alone is computed within the run, for all its requests together
        if query.detail == "summary" and not query.blocks and sizes.is_exact and size < LARGE_GATE_BYTES:
            result = await call.run(inference.output_names, reader=reader)
            infer_body = encode_infer(
                call.model.name, call.model.version, inference, result, call.model.labels
            )
            return _add_summary(infer_body, result.reader_result)

        # anything else needs the gates as arrays, whose exact size may be known only after the run
        arrays = await call.run_named(tuple(dict.fromkeys((*inference.output_names, *gate_names))))
        size = sum([arrays[name].nbytes for name in gate_names])
        check_response_size(query, size, self._max_gates)
        if size < LARGE_GATE_BYTES:
            return _encode_gates(call, query, reader, arrays)
        return await asyncio.to_thread(_encode_gates, call, query, reader, arrays)

    def _prepare(self, model: Model) -> PreparedModel:
        profile = None if model.manifest is None else model.manifest.profile
        threads = threads_per_worker(self.context.settings)
        reader = GateReader(model.gates, model.signature, profile, threads)
        blocks = block_names(model.gates)
        prepared = PreparedModel(
            reader,
            blocks,
            OutputSizes(reader.output_names, model.signature),
            OutputSizes((*reader.output_names, *blocks), model.signature),
        )
        return self._prepared.add(model.digest, prepared)


def _encode_gates(
    call: InferenceCall, query: GateQuery, reader: GateReader, arrays: Mapping[str, Array]
) -> ResponseBody:
    """The outputs, the summary of the gates, and the tensors that the query asks for."""
    rows = call.inference.rows
    (summary,) = reader.read(arrays, rows)
    body = _add_summary(call.encode_infer(arrays), summary)
    tensors = requested_tensors(query, call.model.gates, reader.output_names, arrays, rows)
    entries, tail = encode_tensors(tensors, binary=query.binary)
    return merge_json(body, assemble({"tensors": entries}, tail)) if entries else body


def _add_summary(body: ResponseBody, summary: GateSummary) -> ResponseBody:
    if isinstance(summary, NotFiniteError):
        raise summary
    if body[1] is None:
        return b"%b,%b}" % (body[0][:-1], summary), None
    return merge_json(body, (b"{%b}" % summary, None))


class LesionEndpoint(GatedEndpoint):
    """`POST …/lesion`: the outputs with gates moved beside those without, or a curve of each layer closed."""

    extra_keys = LESION_KEYS

    async def answer(self, call: InferenceCall) -> ResponseBody:
        lesion = parse_lesion_request(call.inference.parameters, call.model.gates)
        return await (_lesion_curve(call) if lesion.curve else _lesion(call, lesion))


async def _lesion(call: InferenceCall, lesion: LesionRequest) -> ResponseBody:
    model, inference = call.model, call.inference
    class_output = next(iter(model.signature.outputs))
    names = tuple(dict.fromkeys((*inference.output_names, class_output)))
    # neither run is batched: the effect must not depend on the rows of other requests
    before = await call.run_named(names, unbatched=True)
    after = await call.run_named(names, lesion.bias_overrides(model.biases), unbatched=True)
    report: dict[str, Any] = {"rows": inference.rows, **lesion.to_json(model.gates)}
    if has_class_scores(model, before[class_output]):
        effect = _effect(model, before[class_output], after[class_output])
        if not effect.is_finite:
            raise NotFiniteError(
                f"lesion: expected numbers to compare, got NaN or Inf in {class_output!r}, "
                "which JSON cannot represent; with these gates moved, the network may compute no numbers"
            )
        labels = model.labels if len(model.labels) == before[class_output].shape[1] else ()
        report |= {**effect.summary(), "by_row": effect.by_row(labels)}
    lesioned = wrap_json("lesioned", call.encode_infer(after))
    added = merge_json((orjson.dumps({"lesion": report}), None), lesioned)
    return merge_json(call.encode_infer(before), added)


async def _lesion_curve(call: InferenceCall) -> ResponseBody:
    model, inference = call.model, call.inference
    layers = curve_layers(model.gates, inference.rows)
    class_output = next(iter(model.signature.outputs))
    before = await call.run_named(
        tuple(dict.fromkeys((*inference.output_names, class_output))), unbatched=True
    )
    if not has_class_scores(model, before[class_output]):
        raise RequestError(
            f"curve: expected a model whose output has a value per class, and {class_output!r} has none"
        )
    entries = []
    for layer, gates in layers:
        overrides = LesionRequest(closed=gates).bias_overrides(model.biases)
        after = await call.run_named((class_output,), overrides, unbatched=True)
        summary = _effect(model, before[class_output], after[class_output]).summary()
        entries.append({"layer": layer, "gates": [gate.name for gate in gates], **summary})
    skipped = sorted(gates_by_layer(model.gates).keys() - {layer for layer, _ in layers})
    curve = {"rows": inference.rows, "layers": entries, "skipped": skipped}
    return merge_json(call.encode_infer(before), (orjson.dumps({"curve": curve}), None))


def has_class_scores(model: Model, output: Array) -> bool:
    """Whether an output has one value for each class, in each row."""
    return model.distribution is not None and output.ndim == 2 and output.shape[1] > 1


def _effect(model: Model, before: Array, after: Array) -> LesionEffect:
    return lesion_effect(before, after, distribution=bool(model.distribution))


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
    """Add the routes of this module, each with and without a version in its path."""
    endpoints: tuple[tuple[str, str, Endpoint], ...] = (
        ("gates", "POST", GatesEndpoint(context)),
        ("lesion", "POST", LesionEndpoint(context)),
        ("gates/profile", "GET", StaticModelEndpoint(context, gate_profile_json, find_model_with_gates)),
        ("gates/drift", "GET", DriftEndpoint(context)),
        ("certificate", "GET", StaticModelEndpoint(context, certificate_json)),
        ("samples", "GET", StaticModelEndpoint(context, samples_json)),
    )
    for path, method, endpoint in endpoints:
        name = path.replace("/", "_")
        for version_path, suffix in (("", ""), ("/versions/{version}", "_version")):
            router.add(method, f"/v2/models/{{model}}{version_path}/{path}", "api", endpoint, name + suffix)
