"""The service in BentoML 1.4.39: bentoml serve bentoml_service:Digits."""

# no `from __future__ import annotations`: BentoML reads annotations at run time

import hmac
import os
from typing import Annotated

import bentoml
import numpy as np
import onnxruntime
from bentoml.validators import DType, Shape
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
Rows = Annotated[np.ndarray, DType("float32"), Shape((-1, 64))]


class Guard:
    """Checks the key and the size of a body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/predict":
            await self.app(scope, receive, send)
            return
        key = dict(scope["headers"]).get(b"x-api-key", b"")
        if not hmac.compare_digest(key, os.environ["KEY"].encode()):
            await JSONResponse({"error": "expected a valid X-Api-Key"}, 401)(scope, receive, send)
            return
        # the body is read here: an exception in receive() would be a status of 500
        parts, size, more = [], 0, True
        while more and size <= MAX_BODY:
            message = await receive()
            parts.append(message)
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        if size > MAX_BODY:
            await JSONResponse({"error": f"expected at most {MAX_BODY} bytes"}, 413)(scope, receive, send)
            return

        async def replay() -> Message:
            return parts.pop(0) if parts else await receive()

        await self.app(scope, replay, send)


@bentoml.service
class Digits:
    def __init__(self) -> None:
        self.session = onnxruntime.InferenceSession(os.environ["FILE"])

    @bentoml.api(batchable=True, max_batch_size=32)
    def predict(self, x: Rows) -> np.ndarray:
        return self.session.run(["output"], {"x": x.reshape(-1, 1, 8, 8)})[0]


Digits.add_asgi_middleware(Guard)
