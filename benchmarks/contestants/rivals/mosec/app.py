"""mosec: a front in Rust, workers in Python, onnxruntime, and its batching unless WAIT_MS is 0."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
import orjson
from mosec import Server, Worker  # type: ignore[import-not-found]


class Logits(Worker):  # type: ignore[misc]
    """One run for all requests of a batch."""

    def __init__(self) -> None:
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )

    def deserialize(self, data: bytes) -> Any:
        return np.array(orjson.loads(data)["x"], np.float32)

    def forward(self, inputs: Any) -> Any:
        if not isinstance(inputs, list):
            return self.session.run(["output"], {"x": inputs})[0]
        (output,) = self.session.run(["output"], {"x": np.concatenate(inputs)})
        ends = np.cumsum([len(rows) for rows in inputs])[:-1]
        return [np.ascontiguousarray(part) for part in np.split(output, ends)]

    def serialize(self, output: Any) -> bytes:
        return orjson.dumps({"logits": output}, option=orjson.OPT_SERIALIZE_NUMPY)


if __name__ == "__main__":
    server = Server()
    wait_ms = int(os.environ["WAIT_MS"])
    batching = {"max_batch_size": 32, "max_wait_time": wait_ms} if wait_ms else {}
    server.append_worker(Logits, num=int(os.environ["WORKERS"]), **batching)
    server.run()
