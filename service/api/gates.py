"""`POST …/gates`: runs a model and returns its gates: a summary, the mean of each unit, or all values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import ModelEndpoint, add_model_routes
from turnpike.service.api.inference import InferenceCall, expect_bytes, merge_json
from turnpike.service.api.openapi.operation import BINARY_DATA, DIGIT_TENSOR, example, operation, parameter
from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.codec.infer_response import JsonAnswers, assemble, encode_infer, encode_tensors
from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.errors import NotFiniteError, NotFoundError, RequestError
from turnpike.service.gates.lesions import MOVE_KEYS, parse_lesion_request
from turnpike.service.gates.query import (
    GateQuery,
    OutputSizes,
    block_names,
    check_response_size,
    parse_gate_query,
    requested_tensors,
)
from turnpike.service.gates.reader import GateReader, GateSummary
from turnpike.service.inference_types import Array, InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.response import ResponseBody
from turnpike.service.requests.router import Router

# the group of the routes of gates on the page /docs
GATES_TAG = "Gates"
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


GATES = operation(
    "GatesAnswer",
    "Run a model and read its gates",
    GATES_TAG,
    "Takes the same body as infer. Returns the outputs and statistics of every transform gate. With `close`, "
    "`open` or `shift`, as in a lesion, all of these are of the network with the gates moved." + BINARY_DATA,
    body="GatesRequest",
    binary=True,
    runs_model=True,
    examples={"digit": example("One handwritten digit", DIGIT_TENSOR)},
    parameters=(
        parameter(
            "detail",
            "query",
            "Only statistics, the mean of each unit, or T itself for every row.",
            {"type": "string", "enum": ["summary", "units", "rows"], "default": "summary"},
        ),
        parameter(
            "blocks", "query", "Also the outputs of the layers.", {"type": "boolean", "default": False}
        ),
        parameter("binary", "query", "Tensors as raw bytes.", {"type": "boolean", "default": False}),
    ),
)


class GatesAnswers:
    """Writes answers with a tensor in JSON and a summary of the gates: an `OutputProcessor`."""

    def __init__(self, answers: JsonAnswers, gates: GateReader) -> None:
        self._answers, self._gates = answers, gates
        self.output_names = tuple(dict.fromkeys(answers.output_names + gates.output_names))

    def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> list[bytes | NotFiniteError]:
        """The answer to each request, or the error that takes its place."""
        bodies = self._answers.process(arrays, rows, requests)
        summaries = self._gates.process(arrays, rows, requests)
        return [
            body
            if isinstance(body, NotFiniteError)
            else summary
            if isinstance(summary, NotFiniteError)
            else b"%b,%b}" % (body[:-1], summary)
            for body, summary in zip(bodies, summaries, strict=True)
        ]


class GatesEndpoint(GatedEndpoint):
    """`POST …/gates`: the outputs, a summary of each gate, and each row's route through the layers."""

    extra_keys = MOVE_KEYS

    def __init__(self, context: ServiceContext, max_prepared_models: int = MAX_PREPARED_MODELS) -> None:
        super().__init__(context)
        self._prepared: BoundedCache[int, PreparedModel] = BoundedCache(max_prepared_models)

    async def answer(self, call: InferenceCall) -> ResponseBody:
        form = call.inference.form
        if form.plan is not None and not call.request.head.query:
            # a request like an earlier one, which was for a summary
            await call.start(form.plan)
            return expect_bytes(call.result().processed), None

        # parse the query, and check the size of the response
        query = parse_gate_query(call.request.head.query, form.parameters)
        if query.binary:
            outputs = tuple(replace(output, binary=True) for output in form.outputs)
            form = replace(form, outputs=outputs)
            call.inference = InferenceRequest(form, call.inference.feeds)
        prepared = self._prepared.get(call.model.serial) or self._prepare(call.model)
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
        size = sizes.total_bytes(call.inference)
        check_response_size(query, size, self._max_gates)
        moved_biases = _moved_biases(call)

        # a summary alone is computed within the run, for all its requests together
        is_small = sizes.is_exact and size < LARGE_GATE_BYTES
        if query.detail == "summary" and not query.blocks and is_small and not moved_biases:
            model = call.model
            answers = JsonAnswers.of(model.name, model.version, form, model.signature)
            if answers is not None:
                plan = call.plan((), GatesAnswers(answers, reader))
                if not call.request.head.query:
                    form.plan = plan
                await call.start(plan)
                return expect_bytes(call.result().processed), None
            await call.start(call.plan(form.output_names, reader))
            result = call.result()
            infer_body = encode_infer(model.name, model.version, form, result, model.labels)
            return _add_summary(infer_body, result.processed)

        # anything else needs the gates as arrays, whose exact size may be known only after the run
        names = tuple(dict.fromkeys((*form.output_names, *gate_names)))
        arrays = await call.run_named(names, moved_biases, unbatched=bool(moved_biases))
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
        return self._prepared.add(model.serial, prepared)


def _moved_biases(call: InferenceCall) -> dict[str, Array] | None:
    """The biases to feed if the request closes, opens or shifts gates; None if it does not."""
    parameters = call.inference.form.parameters
    if not parameters or MOVE_KEYS.isdisjoint(parameters):
        return None
    lesion = parse_lesion_request(parameters, call.model.gates)
    return lesion.bias_overrides(call.model.biases)


def _encode_gates(
    call: InferenceCall, query: GateQuery, reader: GateReader, arrays: Mapping[str, Array]
) -> ResponseBody:
    """The outputs, the summary of the gates, and the tensors that the query asks for."""
    rows = call.inference.form.rows
    (summary,) = reader.process(arrays, rows)
    body = _add_summary(call.encode_infer(arrays), summary)
    tensors = requested_tensors(query, call.model.gates, reader.output_names, arrays, rows)
    entries, tail = encode_tensors(tensors, binary=query.binary)
    return merge_json(body, assemble({"tensors": entries}, tail)) if entries else body


def _add_summary(body: ResponseBody, summary: GateSummary) -> ResponseBody:
    summary = expect_bytes(summary)
    if body[1] is None:
        return b"%b,%b}" % (body[0][:-1], summary), None
    return merge_json(body, (b"{%b}" % summary, None))


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes, with and without a version in the path."""
    add_model_routes(router, "POST", "/v2/models/{model}/gates", GatesEndpoint(context), "gates", GATES)
