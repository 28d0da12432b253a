"""`POST …/lesion`: closes, opens or shifts gates of a model on purpose, and returns the effect."""

from __future__ import annotations

from collections.abc import Mapping

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import add_model_routes
from turnpike.service.api.gates import GATES_TAG, GatedEndpoint
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.openapi.operation import DIGIT_TENSOR, example, operation
from turnpike.service.codec.gates_response import encode_lesion
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.gates.answers import LesionAnswer
from turnpike.service.gates.lesions import (
    LESION_KEYS,
    LesionEffect,
    LesionRequest,
    curve_layers,
    gates_by_layer,
    lesion_effect,
    parse_lesion_request,
)
from turnpike.service.inference_types import Array
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import ResponseBody
from turnpike.service.requests.router import Router

LESION = operation(
    "LesionAnswer",
    "Run a model with gates closed or opened",
    GATES_TAG,
    "Takes the same body as infer, and the gates to close, open or shift. Returns the outputs with and "
    "without these changes, and what changed. `curve` closes each layer alone.",
    body="LesionRequest",
    binary=True,
    runs_model=True,
    examples={
        "close": example("Two layers closed", DIGIT_TENSOR | {"close": [3, 4]}),
        "curve": example("Each layer closed alone", DIGIT_TENSOR | {"curve": True}),
    },
)


class LesionEndpoint(GatedEndpoint):
    """`POST …/lesion`: the outputs with gates moved beside those without, or a curve of each layer closed."""

    extra_keys = LESION_KEYS

    async def answer(self, call: InferenceCall, request: Request) -> ResponseBody:
        return encode_lesion(await run_lesion(call))


async def run_lesion(call: InferenceCall) -> LesionAnswer:
    """Run the model without and with what the parameters of the request move, and compare."""
    lesion = parse_lesion_request(call.inference.form.parameters, call.model.gates)
    return await (_close_each_layer(call) if lesion.curve else _compare(call, lesion))


async def _compare(call: InferenceCall, lesion: LesionRequest) -> LesionAnswer:
    model, form = call.model, call.inference.form
    class_output = next(iter(model.signature.outputs))
    names = tuple(dict.fromkeys((*form.output_names, class_output)))
    # neither run is batched: the effect must not depend on the rows of other requests
    unmoved = unmoved_biases(model)
    before = await call.run_named(names, unmoved, unbatched=True)
    moved = {**unmoved, **lesion.bias_overrides(model.biases)}
    after = await call.run_named(names, moved, unbatched=True)
    report = {"rows": form.rows, **lesion.to_json(model.gates)}
    if has_class_scores(model, before[class_output]):
        effect = _effect(model, before[class_output], after[class_output])
        if not effect.is_finite:
            raise NotFiniteError(
                f"lesion: expected numbers to compare, got NaN or Inf in {class_output!r}, "
                "which JSON cannot represent; with these gates moved, the network may compute no numbers"
            )
        labels = model.labels if len(model.labels) == before[class_output].shape[1] else ()
        report |= {**effect.summary(), "by_row": effect.by_row(labels)}
    return LesionAnswer(call.named_answer(before), report, call.named_answer(after))


async def _close_each_layer(call: InferenceCall) -> LesionAnswer:
    model, form = call.model, call.inference.form
    layers = curve_layers(model.gates, form.rows)
    class_output = next(iter(model.signature.outputs))
    names = tuple(dict.fromkeys((*form.output_names, class_output)))
    before = await call.run_named(names, unmoved_biases(model), unbatched=True)
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
    curve = {"rows": form.rows, "layers": entries, "skipped": skipped}
    return LesionAnswer(call.named_answer(before), curve)


def unmoved_biases(model: Model) -> Mapping[str, Array]:
    """The file's own biases, to feed to the runs of a comparison; empty if they make no difference.

    On OpenVINO, runs that feed biases take place on the CPU provider, and all runs of a comparison must use
    the same provider.
    """
    return {} if model.runtime.cpu_runtime is None else model.biases


def has_class_scores(model: Model, output: Array) -> bool:
    """Whether an output has one value for each class, in each row."""
    return model.distribution is not None and output.ndim == 2 and output.shape[1] > 1


def _effect(model: Model, before: Array, after: Array) -> LesionEffect:
    return lesion_effect(before, after, distribution=bool(model.distribution))


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes, with and without a version in the path."""
    add_model_routes(router, "POST", "/v2/models/{model}/lesion", LesionEndpoint(context), "lesion", LESION)
