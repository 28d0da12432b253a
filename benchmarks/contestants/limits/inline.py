"""Run inline: a raw ASGI application that runs the session in the event loop and does nothing else."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
import orjson

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(os.environ["FILE"], options, providers=["CPUExecutionProvider"])


async def app(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    (logits,) = session.run(["output"], {"x": np.array(orjson.loads(body)["x"], np.float32)})
    answer = orjson.dumps({"logits": logits}, option=orjson.OPT_SERIALIZE_NUMPY)
    length = (b"content-length", b"%d" % len(answer))
    headers = [(b"content-type", b"application/json"), length]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
