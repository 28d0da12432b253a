"""ModelInfer: runs a model on the tensors of a message."""

from __future__ import annotations

from turnpike.service.api.inference import InferenceCall
from turnpike.service.grpc.connection.call import MessageRequest
from turnpike.service.grpc.messages.infer_response import RawAnswers, encode_response, with_id
from turnpike.service.grpc.methods.model_endpoint import GrpcModelEndpoint
from turnpike.service.requests.response import Response


class GrpcInferEndpoint(GrpcModelEndpoint):
    """One message of tensors in, one out."""

    sends_events = True

    async def answer(self, call: InferenceCall, request: MessageRequest) -> Response:
        form = call.inference.form
        if form.plan is None:
            model = call.model
            answers = RawAnswers.of(model.name, model.version, form)
            form.plan = call.plan(() if answers else form.output_names, answers)
        await call.start(form.plan)
        result = call.result()
        if form.plan.processor is None:
            data = encode_response(call.infer_answer(result.arrays))
        else:
            data = result.processed
        return Response(with_id(data, request.message_id))
