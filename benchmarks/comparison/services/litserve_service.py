"""The service in LitServe 0.2.19: LIT_SERVER_API_KEY=$KEY python litserve_service.py."""

# no `from __future__ import annotations`: LitServe reads annotations at run time

import os
import tempfile
from collections.abc import Awaitable, Callable
from typing import Annotated

# the processes of LitServe share it, and prometheus_client reads it when it is imported
if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()

import litserve
import numpy as np
import onnxruntime
from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, make_asgi_app
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import BaseModel, ConfigDict, Field

MAX_BATCH = 32  # rows of a request, and requests of a run
REQUESTS = Counter("requests", "Requests by status.", ["status"])
BATCHES = Histogram("batch_rows", "Rows of a run.", buckets=(1, 2, 4, 8, 16, 32))
Row = Annotated[list[float], Field(min_length=64, max_length=64)]


class Rows(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    x: Annotated[list[Row], Field(min_length=1, max_length=MAX_BATCH)]


class Digits(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.session = onnxruntime.InferenceSession(os.environ["FILE"])

    def decode_request(self, request: Rows) -> np.ndarray:
        return np.array(request.x, np.float32).reshape(-1, 1, 8, 8)

    def batch(self, inputs: list[np.ndarray]) -> np.ndarray:
        self.ends = np.cumsum([len(rows) for rows in inputs])[:-1]
        return np.concatenate(inputs)

    def predict(self, x: np.ndarray) -> np.ndarray:
        BATCHES.observe(len(x))
        return self.session.run(["output"], {"x": x})[0]

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        return np.split(output, self.ends)

    def encode_response(self, output: np.ndarray) -> dict[str, list[list[float]]]:
        return {"scores": output.tolist()}


async def count_requests(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    REQUESTS.labels(response.status_code).inc()
    return response


if __name__ == "__main__":
    server = litserve.LitServer(
        Digits(max_batch_size=MAX_BATCH, batch_timeout=0.002),
        accelerator="cpu",
        max_payload_size=64 * 1024,
    )
    server.app.middleware("http")(count_requests)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    server.app.mount("/metrics", make_asgi_app(registry))
    server.run(host="127.0.0.1", port=int(os.environ["PORT"]), generate_client_file=False)
