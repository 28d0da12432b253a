"""Fake inference servers that answer like Triton, MLServer and KServe, for tests of clients."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

LENGTH_HEADER = "Inference-Header-Content-Length"
WEIGHTS = np.arange(12, dtype="<f4").reshape(4, 3) / 7

TRITON_EXTENSIONS = [
    *("classification", "sequence", "model_repository"),
    *("binary_tensor_data", "parameters", "statistics"),
]
INPUT = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
OUTPUT = {"name": "logits", "datatype": "FP32", "shape": [-1, 3]}


@dataclass
class FakeAnswer:
    """An answer of a fake server; a body that is not bytes is sent as JSON."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class ReceivedRequest:
    """A request that a fake server received; names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Responder = Callable[[ReceivedRequest], FakeAnswer]
# "GET /v2": a JSON body, a FakeAnswer, or a Responder
Routes = Mapping[str, Any]


class FakeServer:
    """A server in a thread; `requests` are those that it has received."""

    def __init__(self, routes: Routes, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[ReceivedRequest] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # head and body are sent in one piece, as by most servers
            wbufsize = -1

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = ReceivedRequest(self.command, self.path, headers, self.rfile.read(size))
                server.requests.append(request)
                route = routes.get(f"{request.method} {request.path}", FakeAnswer({"error": "not here"}, 404))
                answer = route(request) if callable(route) else route
                answer = answer if isinstance(answer, FakeAnswer) else FakeAnswer(answer)
                answer_headers = {"Content-Length": str(len(answer.data))} | answer.headers
                self.send_response(answer.status)
                for name, value in answer_headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.data)
                if int(answer_headers["Content-Length"]) != len(answer.data):
                    self.close_connection = True

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.01)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def fake_server(routes: Routes, tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """Run a fake server on a free port."""
    server = FakeServer(routes, tls)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def triton(infer: Responder | None = None, **changes: Any) -> dict[str, Any]:
    """Routes of Triton: an index in place of a list of models, and binary tensors."""
    metadata = {"name": "scale", "versions": ["1"], "platform": "onnxruntime_onnx"}
    metadata |= {"inputs": [INPUT], "outputs": [OUTPUT]} | changes
    return {
        "GET /v2": {"name": "triton", "version": "2.50.0", "extensions": TRITON_EXTENSIONS},
        "POST /v2/repository/index": [{"name": "scale", "version": "1", "state": "READY"}],
        "GET /v2/models/scale": metadata,
        "POST /v2/models/scale/infer": infer or scale_rows,
    }


def mlserver(**changes: Any) -> dict[str, Any]:
    """Routes of MLServer: no versions, no extensions, and an id in every answer."""

    def infer(request: ReceivedRequest) -> FakeAnswer:
        if LENGTH_HEADER.lower() in request.headers:
            return FakeAnswer({"error": "Invalid JSON"}, 400)
        document = scale_rows(request).body
        del document["model_version"]
        return FakeAnswer({**document, "id": str(uuid.uuid4()), "parameters": {}})

    metadata = {
        "name": "scale",
        "versions": [],
        "platform": "",
        "inputs": [],
        "outputs": [],
        "parameters": {},
    }
    return {
        "GET /v2": {"name": "mlserver", "version": "1.7.1", "extensions": []},
        "POST /v2/repository/index": [{"name": "scale", "version": None, "state": "READY", "reason": ""}],
        "GET /v2/models/scale": metadata | changes,
        "POST /v2/models/scale/infer": infer,
    }


def kserve() -> dict[str, Any]:
    """Routes of KServe: a list of names, both protocols, and binary tensors without the extension."""

    def predict(request: ReceivedRequest) -> FakeAnswer:
        rows = np.array(json.loads(request.body)["instances"], "<f4")
        return FakeAnswer({"predictions": (rows @ WEIGHTS).tolist()})

    return triton(versions=None) | {
        "GET /v2": {"name": "kserve", "version": "0.15.0", "extensions": ["model_repository_extension"]},
        "GET /v2/models": {"models": ["scale"]},
        "GET /v1/models/scale": {"name": "scale", "ready": "True"},
        "POST /v1/models/scale:predict": predict,
    }


def scale_rows(request: ReceivedRequest) -> FakeAnswer:
    """The rows times WEIGHTS, as JSON or as binary tensors, as the request asks for."""
    length = request.headers.get(LENGTH_HEADER.lower())
    head = json.loads(request.body[: int(length)] if length else request.body)
    (entry,) = head["inputs"]
    size = entry.get("parameters", {}).get("binary_data_size")
    values = np.array(entry["data"], "<f4") if size is None else np.frombuffer(request.body[-size:], "<f4")
    result = values.reshape(entry["shape"]) @ WEIGHTS
    output: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": list(result.shape)}
    document = {"model_name": "scale", "model_version": "1", "outputs": [output]}
    if not head.get("parameters", {}).get("binary_data_output"):
        output["data"] = result.ravel().tolist()
        return FakeAnswer(document)
    output["parameters"] = {"binary_data_size": result.nbytes}
    text = json.dumps(document).encode()
    return FakeAnswer(text + result.tobytes(), headers={LENGTH_HEADER: str(len(text))})
