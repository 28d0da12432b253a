"""granian: an HTTP server in Rust, and an application that runs the session in the event loop."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
import orjson

HEADERS = [("content-type", "application/json")]

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(os.environ["FILE"], options, providers=["CPUExecutionProvider"])


async def app(scope: Any, protocol: Any) -> None:
    (logits,) = session.run(["output"], {"x": np.array(orjson.loads(await protocol())["x"], np.float32)})
    answer = orjson.dumps({"logits": logits}, option=orjson.OPT_SERIALIZE_NUMPY)
    protocol.response_bytes(200, HEADERS, answer)
