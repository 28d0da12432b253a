"""BentoML with onnxruntime and its batching."""

# no `from __future__ import annotations`: BentoML reads annotations at run time

import os
from typing import Annotated

import bentoml  # type: ignore[import-not-found]
import numpy as np
import onnxruntime
from bentoml.validators import DType  # type: ignore[import-not-found]

quiet = {"access": {"enabled": False}}


@bentoml.service(workers=int(os.environ["WORKERS"]), logging=quiet)
class Logits:
    """Rows in, logits out."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )

    @bentoml.api(batchable=os.environ["BATCH"] == "1", max_batch_size=128)  # type: ignore[untyped-decorator]
    def predict(self, x: Annotated[np.ndarray, DType("float32")]) -> np.ndarray:
        return self.session.run(["output"], {"x": x})[0]
