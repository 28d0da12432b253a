"""`POST …/gates`: runs a model and returns its gates: a summary, the mean of each unit, or all values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import ModelEndpoint, add_model_routes
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.openapi.operation import BINARY_DATA, DIGIT_TENSOR, example, operation, parameter
from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.codec.gates_response import JsonGatesAnswers, JsonSummaries, JsonSummary, encode_gates
from turnpike.service.codec.infer_response import JsonAnswers
from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.errors import NotFoundError, RequestError, expect_finite
from turnpike.service.gates.answers import GatesAnswer, SummaryT
from turnpike.service.gates.lesions import MOVE_KEYS, parse_lesion_request
from turnpike.service.gates.query import (
    GateQuery,
    OutputSizes,
    block_names,
    check_response_size,
    parse_gate_query,
    requested_tensors,
)
from turnpike.service.gates.reader import GateReader, MakeEncoder
from turnpike.service.inference_types import Array, RunPlan
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import ResponseBody
from turnpike.service.requests.router import Router

T = TypeVar("T")

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


class GatedEndpoint(ModelEndpoint[Request]):
    """An endpoint that runs a model with gates."""

    def find_model(self, params: Mapping[str, str]) -> Model:
        return find_model_with_gates(self.context, params)


@dataclass(frozen=True, slots=True)
class PreparedModel(Generic[SummaryT]):
    """What is computed once per model for all requests for its gates."""

    reader: GateReader[SummaryT]
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


# a tuple: creating a frozen object takes longer
class GatesRun(NamedTuple, Generic[SummaryT]):
    """How the gates of one request are read."""

    reader: GateReader[SummaryT]
    query: GateQuery
    # the hidden outputs to read, which may take this many bytes
    gate_names: tuple[str, ...]
    max_bytes: int
    # to feed if the request closes, opens or shifts gates
    moved_biases: dict[str, Array] | None
    # whether a summary alone is wanted, of gates that are small enough to read them within the run
    in_run: bool

    def answer(self, call: InferenceCall, encode: Callable[[GatesAnswer[SummaryT]], T]) -> Awaitable[T]:
        """Run the model, and encode the answer. `encode` is called in a thread if the gates are large."""
        return self._summarize_in_run(call, encode) if self.in_run else self._read_after_run(call, encode)

    async def _summarize_in_run(self, call: InferenceCall, encode: Callable[[GatesAnswer[SummaryT]], T]) -> T:
        """Read the gates for all requests of a run together; they are dropped after it."""
        await call.start(call.plan(call.inference.form.output_names, self.reader))
        result = call.result()
        return encode(GatesAnswer(call.infer_answer(result.arrays), result.processed))

    async def _read_after_run(self, call: InferenceCall, encode: Callable[[GatesAnswer[SummaryT]], T]) -> T:
        """Read the gates of one request. With moved gates, the run is this request's alone."""
        names = tuple(dict.fromkeys((*call.inference.form.output_names, *self.gate_names)))
        arrays = await call.run_named(names, self.moved_biases)
        # only the run may have shown how large they are
        size = sum([arrays[name].nbytes for name in self.gate_names])
        check_response_size(self.query, size, self.max_bytes)
        if size < LARGE_GATE_BYTES:
            return encode(self._read_arrays(call, arrays))
        return await asyncio.to_thread(lambda: encode(self._read_arrays(call, arrays)))

    def _read_arrays(self, call: InferenceCall, arrays: Mapping[str, Array]) -> GatesAnswer[SummaryT]:
        """Read the gates of one request, and take the tensors that its query asks for."""
        rows = call.inference.form.rows
        (summary,) = self.reader.process(arrays, rows)
        names = self.reader.output_names
        tensors = requested_tensors(self.query, call.model.gates, names, arrays, rows)
        return GatesAnswer(call.named_answer(arrays), summary, tensors)


class GatesRunner(Generic[SummaryT]):
    """Reads the gates of models for the requests of a transport, whose encoder `make_encoder` makes."""

    def __init__(
        self,
        context: ServiceContext,
        make_encoder: MakeEncoder[SummaryT],
        max_prepared_models: int = MAX_PREPARED_MODELS,
    ) -> None:
        self._make_encoder = make_encoder
        self._max_gates = context.settings.max_gates
        self._threads = threads_per_worker(context.settings)
        self._prepared: BoundedCache[int, PreparedModel[SummaryT]] = BoundedCache(max_prepared_models)

    def prepare_run(self, call: InferenceCall, query: GateQuery) -> GatesRun[SummaryT]:
        """Decide how to read the gates, and check their size as far as it is known before the run."""
        prepared = self._prepared.get(call.model.serial) or self.prepare_model(call.model)
        gate_names, sizes = prepared.reader.output_names, prepared.sizes
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
        is_small = sizes.is_exact and size < LARGE_GATE_BYTES
        in_run = query.detail == "summary" and not query.blocks and is_small and not moved_biases
        return GatesRun(prepared.reader, query, gate_names, self._max_gates, moved_biases, in_run)

    def prepare_model(self, model: Model) -> PreparedModel[SummaryT]:
        """Compute what all requests for a model have in common."""
        profile = None if model.manifest is None else model.manifest.profile
        reader = GateReader(model.gates, model.signature, profile, self._make_encoder, self._threads)
        blocks = block_names(model.gates)
        prepared = PreparedModel(
            reader,
            blocks,
            OutputSizes(reader.output_names, model.signature),
            OutputSizes((*reader.output_names, *blocks), model.signature),
        )
        return self._prepared.add(model.serial, prepared)


class GatesEndpoint(GatedEndpoint):
    """`POST …/gates`: the outputs, a summary of each gate, and each row's route through the layers."""

    extra_keys = MOVE_KEYS

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._runner = GatesRunner(context, JsonSummaries)

    async def answer(self, call: InferenceCall, request: Request) -> ResponseBody:
        form, query_string = call.inference.form, request.head.query
        if form.plan is not None and not query_string:
            # a request like an earlier one, whose answer was written in the run
            return await _answer_in_run(call, form.plan)
        query = parse_gate_query(query_string, form.parameters)
        if query.binary and not all(output.binary for output in form.outputs):
            call.inference = call.inference.with_binary_outputs()
        run = self._runner.prepare_run(call, query)
        plan = _plan_of_whole_answer(call, run.reader) if run.in_run else None
        if plan is None:
            return await run.answer(call, partial(encode_gates, binary=query.binary))
        if not query_string:
            form.plan = plan
        return await _answer_in_run(call, plan)


def _plan_of_whole_answer(call: InferenceCall, reader: GateReader[JsonSummary]) -> RunPlan | None:
    """A run that writes the whole answer to each of its requests; None if not all of it is plain JSON."""
    model = call.model
    answers = JsonAnswers.of(model.name, model.version, call.inference.form, model.signature)
    return None if answers is None else call.plan((), JsonGatesAnswers(answers, reader))


async def _answer_in_run(call: InferenceCall, plan: RunPlan) -> ResponseBody:
    await call.start(plan)
    return expect_finite(call.result().processed), None


def _moved_biases(call: InferenceCall) -> dict[str, Array] | None:
    """The biases to feed if the request closes, opens or shifts gates; None if it does not."""
    parameters = call.inference.form.parameters
    if not parameters or MOVE_KEYS.isdisjoint(parameters):
        return None
    lesion = parse_lesion_request(parameters, call.model.gates)
    return lesion.bias_overrides(call.model.biases)


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes, with and without a version in the path."""
    add_model_routes(router, "POST", "/v2/models/{model}/gates", GatesEndpoint(context), "gates", GATES)
