"""Requests for the bundled digits model, in binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.live_server import ROOT
from tests.support.load_clients import ClientRequest
from turnpike.service.artifact.runtime import open_model

BUNDLED_MODEL = ROOT / "service/default/digits-10/1/model.onnx"
INFER_PATH = "/v2/models/digits-10/infer"


def binary_request(
    values: np.ndarray[Any, np.dtype[Any]], parameters: str = ""
) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """An infer request with binary data that asks for binary outputs."""
    head = (
        f'{{"parameters":{{"binary_data_output":true{parameters}}},"inputs":[{{"name":"x",'
        f'"shape":{list(values.shape)},"datatype":"FP32","parameters":{{"binary_data_size":{values.nbytes}}}}}]}}'
    ).encode()
    return head + values.tobytes(), (("Inference-Header-Content-Length", str(len(head))),)


def checked_requests(
    count: int, path: Path = BUNDLED_MODEL, sizes: tuple[int, ...] = (1, 2, 3, 5, 8)
) -> list[ClientRequest]:
    """Requests with different rows and sizes, whose results are checked bit for bit."""
    runtime = open_model(path)
    generator = np.random.default_rng(0)
    requests = []
    for number in range(count):
        batch = generator.integers(0, 17, (sizes[number % len(sizes)], 1, 8, 8)).astype(np.float32)
        expected = runtime.run({"x": batch})[0].tobytes()
        body, headers = binary_request(batch)
        requests.append(ClientRequest(INFER_PATH, body, headers, expecting(expected, number)))
    return requests


def expecting(expected: bytes, number: int) -> Any:
    return lambda body: None if body.endswith(expected) else f"request {number} got another result"
