"""KServe's model server with onnxruntime, which it runs in its event loop."""

from __future__ import annotations

import os
from typing import Any

import kserve  # type: ignore[import-not-found]
import onnxruntime


class Logits(kserve.Model):  # type: ignore[misc]
    """Rows in, logits out."""

    def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )
        self.ready = True
        return self.ready

    def predict(self, payload: Any, headers: Any = None) -> Any:
        (logits,) = self.session.run(["output"], {"x": payload.inputs[0].as_numpy()})
        output = kserve.InferOutput("output", list(logits.shape), "FP32")
        output.set_data_from_numpy(logits, binary_data=True)
        return kserve.InferResponse(payload.id or "", self.name, [output])


if __name__ == "__main__":
    model = Logits(os.environ["NET"])
    model.load()
    server = kserve.ModelServer(
        http_port=int(os.environ["PORT"]),
        grpc_port=int(os.environ["GRPC_PORT"]),
        # workers of HTTP; gRPC is served by one process in any case
        workers=1,
        enable_latency_logging=False,
    )
    server.start([model])
