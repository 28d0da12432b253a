"""The model of MLServer: one run of onnxruntime for each request."""

from __future__ import annotations

import os

import onnxruntime
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]


class Logits(MLModel):  # type: ignore[misc]
    """Rows in, logits out."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        (logits,) = self.session.run(["output"], {"x": NumpyCodec.decode_input(payload.inputs[0])})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output", logits)])
