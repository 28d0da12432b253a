"""`POST /v1/models/{model}:predict`: rows in, labels and probabilities out, for a person with curl."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import ModelEndpoint, add_model_routes
from turnpike.service.api.inference import InferenceCall
from turnpike.service.api.open_inference import JsonEndpoint
from turnpike.service.api.openapi.operation import DIGIT, example, operation
from turnpike.service.codec.predict_csv import decode_csv
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.codec.tables.predictions import encode_predictions, predictions_csv
from turnpike.service.codec.tables.target_summary import target_summary
from turnpike.service.inference_types import InferenceRequest
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, ResponseBody
from turnpike.service.requests.router import Router

CSV_LINES = b"content-type: text/csv; charset=utf-8\r\n"

# the group of these routes on the page /docs
TAG = "Predict"
PREDICT = operation(
    "PredictAnswer",
    "Run a model on rows",
    TAG,
    "Takes rows and returns predictions, with labels and probabilities if the model has labels.\n\n"
    "Rows may also be CSV, with a column for each value of a row. A header has the names of the model's "
    "features, in any order; without one, the columns are in the order of the model. "
    "With `Accept: text/csv`, the answer is a table too, and keeps columns that are no features. "
    "If one of them is what the model predicts, the `summary` of the JSON answer compares them.",
    body="PredictRequest",
    csv=True,
    runs_model=True,
    examples={"digit": example("One handwritten digit", {"instances": [list(DIGIT)]})},
)


MODELS = operation("Models", "The names of all models", TAG)
MODEL = operation("Ready", "Whether a model is served now", TAG)


class PredictEndpoint(ModelEndpoint[Request]):
    """`{"instances": […]}` to `{"predictions": […]}`, each of them in JSON or as a table in CSV."""

    sends_events = True

    def decode(self, body: bytes, request: Request, model: Model) -> InferenceRequest:
        if request.head.sends_csv:
            return decode_csv(body, model.signature, self.context.limits)
        return decode_rows(body, model, self.context)

    async def answer(self, call: InferenceCall, request: Request) -> ResponseBody | Response:
        wants_csv = request.head.wants_csv
        content = await predictions_json(call, bare=self.context.settings.old_predict and not wants_csv)
        if wants_csv:
            # in a thread, because a large table takes long
            table = await asyncio.to_thread(_to_csv, content, call.inference.others)
            return Response(table, CSV_LINES)
        return content, None


def decode_rows(body: bytes, model: Model, context: ServiceContext) -> InferenceRequest:
    """Decode rows in JSON."""
    return decode_instances(body, model.signature, context.limits)


async def predictions_json(call: InferenceCall, *, bare: bool) -> bytes:
    """Run the model, and encode its predictions; `bare` is the form of earlier versions."""
    await call.start(call.plan(call.inference.form.output_names))
    answer = call.infer_answer(call.result().arrays)
    others = call.inference.others
    more: dict[str, Any] = {}
    if others and (summary := target_summary(call.model.manifest, others, answer.arrays[0])):
        more["summary"] = summary
    if (warnings := call.inference.warnings) is not None:
        more |= warnings.listed()
        call.model.counters.count_warnings(warnings.counts())
    return encode_predictions(
        answer,
        call.model.distribution,
        is_number=call.model.predicts_number,
        interval=call.model.interval,
        bare=bare,
        more=more,
    )


def _to_csv(content: bytes, others: Mapping[str, Sequence[str]] | None) -> bytes:
    """The predictions of an answer in JSON as a table, beside other columns of the request's table."""
    return predictions_csv(orjson.loads(content)["predictions"], others=others).encode()


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the predict routes, for the newest version of a model and for a named one, and those of KServe."""

    def models(_: Mapping[str, str]) -> Any:
        return {"models": context.registry.names()}

    def model(params: Mapping[str, str]) -> Any:
        context.registry.find(params["model"])
        return {"name": params["model"], "ready": True}

    # before the route of a model, whose pattern fits its path too
    path = "/v1/models/{model}:predict"
    add_model_routes(router, "POST", path, PredictEndpoint(context), "predict", PREDICT)
    router.add("GET", "/v1/models", "api", JsonEndpoint(models), "v1_models", MODELS)
    router.add("GET", "/v1/models/{model}", "api", JsonEndpoint(model), "v1_model", MODEL)
