"""`POST …/lesion`: the outputs with gates moved beside those without, or a curve of each layer closed."""

from __future__ import annotations

from typing import Any

import orjson

from service.api.gated import GatedEndpoint
from service.api.inquiry import Content, Inquiry, joined, nested
from service.errors import NotFinite, RequestError
from service.gates.lesions import KEYS, Effect, Lesion, by_layer, effect, layers, lesion
from service.inference_types import Array
from service.registry.model import Model


class LesionEndpoint(GatedEndpoint):
    """Runs the caller's own rows with gates closed, opened or shifted."""

    extra = KEYS

    async def content(self, inquiry: Inquiry) -> Content:
        model, inference = inquiry.model, inquiry.inference
        asked = lesion(inference.parameters, model.gates)
        return await (_curve(inquiry) if asked.curve else _lesion(inquiry, asked))


async def _lesion(inquiry: Inquiry, asked: Lesion) -> Content:
    model, inference = inquiry.model, inquiry.inference
    moved = asked.feeds(model.biases)
    first = next(iter(model.signature.outputs))
    names = tuple(dict.fromkeys((*inference.names, first)))
    before = await inquiry.by_name(names, alone=True)
    after = await inquiry.by_name(names, moved, alone=True)
    told: dict[str, Any] = {"rows": inference.rows, **asked.to_json(model.gates)}
    if tells_classes(model, before[first]):
        changed = _effect(model, before[first], after[first])
        if not changed.known:
            raise NotFinite(
                f"lesion: expected numbers to compare, got NaN or Inf in {first!r}, "
                "which JSON cannot say; without these gates the network may give none"
            )
        labels = model.labels if len(model.labels) == before[first].shape[1] else ()
        told |= {**changed.summary(), "by_row": changed.by_row(labels)}
    more = joined((orjson.dumps({"lesion": told}), None), nested("lesioned", inquiry.as_infer(after)))
    return joined(inquiry.as_infer(before), more)


async def _curve(inquiry: Inquiry) -> Content:
    model, inference = inquiry.model, inquiry.inference
    todo = layers(model.gates, inference.rows)
    first = next(iter(model.signature.outputs))
    before = await inquiry.by_name(tuple(dict.fromkeys((*inference.names, first))), alone=True)
    if not tells_classes(model, before[first]):
        raise RequestError(f"curve: expected a model whose output tells classes, and {first!r} tells none")
    entries = []
    for layer, gates in todo:
        after = await inquiry.by_name((first,), Lesion(closed=gates).feeds(model.biases), alone=True)
        told = _effect(model, before[first], after[first]).summary()
        entries.append({"layer": layer, "gates": [gate.name for gate in gates], **told})
    skipped = sorted(by_layer(model.gates).keys() - {layer for layer, _ in todo})
    curve = {"rows": inference.rows, "layers": entries, "skipped": skipped}
    return joined(inquiry.as_infer(before), (orjson.dumps({"curve": curve}), None))


def tells_classes(model: Model, output: Array) -> bool:
    """Whether an output is one value a class, row by row."""
    return model.distribution is not None and output.ndim == 2 and output.shape[1] > 1


def _effect(model: Model, before: Array, after: Array) -> Effect:
    return effect(before, after, distribution=bool(model.distribution))
