"""The model of Triton's Python backend: one run of onnxruntime for all requests of a batch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton  # type: ignore[import-not-found]


class TritonPythonModel:
    """Triton requires this name."""

    def initialize(self, args: dict[str, str]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        self.session = onnxruntime.InferenceSession(
            os.environ["FILE"], options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        (logits,) = self.session.run(["output"], {"x": rows[0] if len(rows) == 1 else np.concatenate(rows)})
        answers, start = [], 0
        for part in rows:
            answers.append(
                triton.InferenceResponse([triton.Tensor("output", logits[start : start + len(part)])])
            )
            start += len(part)
        return answers
