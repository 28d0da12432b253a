"""`POST /v1/models/{model}:predict`: rows in, labels and probabilities out, for a person with curl."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint
from service.api.inference import InferenceCall
from service.api.open_inference import ModelName
from service.http.response import ResponseBody
from service.http.router import Router
from service.inference_types import InferenceRequest
from service.protocol.predict_json import decode_instances, encode_predictions
from service.registry.model import Model


class PredictEndpoint(ModelEndpoint):
    """`{"instances": […]}` to `{"predictions": […]}`."""

    def decode(self, body: bytes, json_length: int | None, model: Model) -> InferenceRequest:
        return decode_instances(body, model.signature, self.context.limits)

    async def answer(self, call: InferenceCall) -> ResponseBody:
        model, inference = call.model, call.inference
        result = await call.run(inference.output_names)
        content = encode_predictions(
            model.name, model.version, inference, result, model.labels, model.distribution
        )
        return content, None


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the predict routes, for the newest version of a model and for a named one."""
    predict = PredictEndpoint(context)
    router.add("POST", "/v1/models/{model}:predict", "api", predict, "predict")
    router.add("POST", "/v1/models/{model}/versions/{version}:predict", "api", predict, "predict_version")


def fastapi_routes(context: ServiceContext) -> APIRouter:
    """The routes of /v1 that run no model: the list of models, and whether one is served."""
    routes = APIRouter(prefix="/v1", tags=["Predict"], dependencies=[Depends(context.auth.require("api"))])

    @routes.get("/models", summary="The names of all models")
    async def models() -> Any:
        return {"models": context.registry.names()}

    @routes.get("/models/{model}", summary="Whether a model is served now")
    async def model(model: ModelName) -> Any:
        context.registry.find(model)
        return {"name": model, "ready": True}

    return routes
