"""`POST /v1/models/{model}:predict`: rows in, labels and probabilities out, for a person with curl."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Depends

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint, add_model_routes
from service.api.inference import InferenceCall
from service.api.openapi.operation import DIGIT, ModelName, example, operation
from service.http.request import RequestHead
from service.http.response import Response, ResponseBody
from service.http.router import Router
from service.inference_types import InferenceRequest
from service.protocol.predict_csv import decode_csv, predictions_csv
from service.protocol.predict_json import decode_instances, encode_predictions
from service.registry.model import Model

CSV_LINES = b"content-type: text/csv; charset=utf-8\r\n"

PREDICT = operation(
    "PredictAnswer",
    "Run a model on rows",
    "Predict",
    "Takes rows and returns predictions, with labels and probabilities if the model has labels.\n\n"
    "Rows may also be CSV, with a column for each value of a row. A header has the names of the model's "
    "features, in any order; without one, the columns are in the order of the model. "
    "With `Accept: text/csv`, the answer is a table too.",
    body="PredictRequest",
    csv=True,
    runs_model=True,
    examples={"digit": example("One handwritten digit", {"instances": [list(DIGIT)]})},
)


class PredictEndpoint(ModelEndpoint):
    """`{"instances": […]}` to `{"predictions": […]}`, each of them in JSON or as a table in CSV."""

    def decode(self, body: bytes, head: RequestHead, model: Model) -> InferenceRequest:
        if head.sends_csv:
            return decode_csv(body, model.signature, self.context.limits)
        return decode_instances(body, model.signature, self.context.limits)

    async def answer(self, call: InferenceCall) -> ResponseBody | Response:
        model, form = call.model, call.inference.form
        await call.start(call.plan(form.output_names))
        content = encode_predictions(
            model.name, model.version, form, call.result(), model.labels, model.distribution
        )
        if call.request.head.wants_csv:
            # in a thread, because a large table takes long
            return Response(await asyncio.to_thread(_to_csv, content), CSV_LINES)
        return content, None


def _to_csv(content: bytes) -> bytes:
    """The predictions of an answer in JSON as a table."""
    return predictions_csv(orjson.loads(content)["predictions"]).encode()


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the predict routes, for the newest version of a model and for a named one."""
    path = "/v1/models/{model}:predict"
    add_model_routes(router, "POST", path, PredictEndpoint(context), "predict", PREDICT)


def fastapi_routes(context: ServiceContext) -> APIRouter:
    """The routes of /v1 that run no model: the list of models, and whether one is served."""
    routes = APIRouter(prefix="/v1", tags=["Predict"], dependencies=[Depends(context.auth.require("api"))])

    @routes.get("/models", summary="The names of all models", openapi_extra=operation("Models"))
    async def models() -> Any:
        return {"models": context.registry.names()}

    @routes.get("/models/{model}", summary="Whether a model is served now", openapi_extra=operation("Ready"))
    async def model(model: ModelName) -> Any:
        context.registry.find(model)
        return {"name": model, "ready": True}

    return routes
