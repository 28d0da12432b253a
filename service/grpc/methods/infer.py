"""ModelInfer: runs a model on the tensors of a message."""

from __future__ import annotations

from typing import cast

from turnpike.service.api.inference import InferenceCall
from turnpike.service.grpc.connection.call import MessageRequest
from turnpike.service.grpc.messages.infer_response import RawAnswers, encode_response, with_id
from turnpike.service.grpc.methods.model_endpoint import GrpcModelEndpoint
from turnpike.service.requests.response import Response


class GrpcInferEndpoint(GrpcModelEndpoint):
    """One message of tensors in, one out."""

    async def answer(self, call: InferenceCall) -> Response:
        model, form = call.model, call.inference.form
        if form.plan is None:
            answers = RawAnswers.of(model.name, model.version, form)
            form.plan = call.plan(() if answers else form.output_names, answers)
        await call.start(form.plan)
        result = call.result()
        if form.plan.processor is None:
            data = encode_response(model.name, model.version, form, result, model.labels)
        else:
            data = result.processed
        return Response(with_id(data, cast("MessageRequest", call.request).message_id))
