"""The service in FastAPI alone: uvicorn fastapi_service:app."""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import numpy as np
import onnxruntime
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter, Histogram, make_asgi_app
from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BODY = 64 * 1024
MAX_BATCH = 32  # rows
REQUESTS = Counter("requests", "Requests by status.", ["status"])
BATCHES = Histogram("batch_rows", "Rows of a run.", buckets=(1, 2, 4, 8, 16, 32))
Row = Annotated[list[float], Field(min_length=64, max_length=64)]


class Rows(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    x: Annotated[list[Row], Field(min_length=1, max_length=MAX_BATCH)]


class Batcher:
    """While a run takes place, requests gather for the next one."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session
        self.waiting: list[tuple[np.ndarray, asyncio.Future[np.ndarray]]] = []
        self.task: asyncio.Task[None] | None = None

    async def predict(self, rows: np.ndarray) -> np.ndarray:
        answer: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self.waiting.append((rows, answer))
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.run_waiting())
        return await answer

    async def run_waiting(self) -> None:
        while self.waiting:
            batch, size = [], 0
            while self.waiting and size + len(self.waiting[0][0]) <= MAX_BATCH:
                batch.append(self.waiting.pop(0))
                size += len(batch[-1][0])
            BATCHES.observe(size)
            x = np.concatenate([rows for rows, _ in batch])
            try:
                (scores,) = await asyncio.to_thread(self.session.run, ["output"], {"x": x})
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for rows, answer in batch:
                if not answer.done():  # the client may have closed
                    answer.set_result(scores[: len(rows)])
                scores = scores[len(rows) :]


def check_key(x_api_key: Annotated[str, Header()] = "") -> None:
    if not hmac.compare_digest(x_api_key.encode(), os.environ["KEY"].encode()):
        raise HTTPException(401, "expected the header X-Api-Key with a valid key")


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"expected at most {MAX_BODY} bytes")
    return bytes(body)


@asynccontextmanager
async def open_session(app: FastAPI) -> AsyncIterator[None]:
    app.state.batcher = Batcher(onnxruntime.InferenceSession(os.environ["FILE"]))
    yield


app = FastAPI(lifespan=open_session)
app.mount("/metrics", make_asgi_app())


@app.middleware("http")
async def count_requests(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    REQUESTS.labels(response.status_code).inc()
    return response


@app.post("/predict", dependencies=[Depends(check_key)])
async def predict(body: Annotated[bytes, Depends(read_body)]) -> dict[str, list[list[float]]]:
    try:
        rows = Rows.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from error
    x = np.array(rows.x, np.float32).reshape(-1, 1, 8, 8)
    return {"scores": (await app.state.batcher.predict(x)).tolist()}


@app.get("/ready")
async def ready() -> dict[str, bool]:
    return {"ready": True}  # the server accepts requests when the session is open
