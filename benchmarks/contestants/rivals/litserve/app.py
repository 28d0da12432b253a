"""LitServe with onnxruntime and its batching."""

# no `from __future__ import annotations`: LitServe reads annotations at run time

import os
from typing import Any

import litserve  # type: ignore[import-not-found]
import numpy as np
import onnxruntime


class Logits(litserve.LitAPI):  # type: ignore[misc]
    """One run for all requests of a batch."""

    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )

    def decode_request(self, request: dict[str, Any]) -> Any:
        return np.array(request["x"], np.float32)

    def batch(self, inputs: list[Any]) -> Any:
        self.ends = np.cumsum([len(rows) for rows in inputs])[:-1]
        return np.concatenate(inputs)

    def predict(self, x: Any) -> Any:
        return self.session.run(["output"], {"x": x})[0]

    def unbatch(self, output: Any) -> list[Any]:
        return np.split(output, self.ends)

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"logits": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(
        Logits(max_batch_size=32, batch_timeout=0.002),
        accelerator="cpu",
        workers_per_device=int(os.environ["WORKERS"]),
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        num_api_servers=2,
        log_level="warning",
        generate_client_file=False,
    )
