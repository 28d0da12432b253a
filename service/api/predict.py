"""`POST /v1/models/{model}:predict`: rows in, labels and probabilities out, for a person with curl."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from starlette.routing import Route

from service.api.context import ServiceContext
from service.api.endpoint import ModelEndpoint
from service.api.inference import Content, InferenceCall
from service.api.open_inference import ModelName
from service.inference_types import InferenceRequest
from service.protocol.predict_json import decode_instances, encode_predictions
from service.registry.model import Model


class PredictEndpoint(ModelEndpoint):
    """`{"instances": […]}` to `{"predictions": […]}`."""

    def decode(self, body: bytes, header: int | None, model: Model) -> InferenceRequest:
        return decode_instances(body, model.signature, self.parts.limits)

    async def content(self, inquiry: InferenceCall) -> Content:
        model, inference = inquiry.model, inquiry.inference
        given = await inquiry.run(inference.output_names)
        content = encode_predictions(
            model.name, model.version, inference, given, model.labels, model.distribution
        )
        return content, None


def predict_routes(parts: ServiceContext) -> list[Route]:
    """By the newest version, or by one that is named."""
    predict = parts.access.guard("api", PredictEndpoint(parts))
    return [
        Route("/v1/models/{model}:predict", predict, methods=["POST"], name="predict"),
        Route(
            "/v1/models/{model}/versions/{version}:predict", predict, methods=["POST"], name="predict_version"
        ),
    ]


def router(parts: ServiceContext) -> APIRouter:
    """What clients of the first protocol ask before they predict."""
    routes = APIRouter(
        prefix="/v1", tags=["PredictEndpoint"], dependencies=[Depends(parts.access.needs("api"))]
    )

    @routes.get("/models", summary="The names of all models")
    async def models() -> Any:
        return {"models": parts.shelf.names()}

    @routes.get("/models/{model}", summary="Whether a model is served now")
    async def model(model: ModelName) -> Any:
        parts.shelf.find(model)
        return {"name": model, "ready": True}

    return routes
