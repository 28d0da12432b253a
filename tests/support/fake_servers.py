"""Small servers that answer as other people's do, for a client that must get along with any."""

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

LENGTH = "Inference-Header-Content-Length"
WEIGHTS = np.arange(12, dtype="<f4").reshape(4, 3) / 7

TRITON = ["classification", "sequence", "model_repository", "binary_tensor_data", "parameters", "statistics"]
INPUT = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
OUTPUT = {"name": "logits", "datatype": "FP32", "shape": [-1, 3]}


@dataclass
class Given:
    """What a server answers."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answerer = Callable[[Asked], Given]
Routes = Mapping[str, Any]  # "GET /v2": what is answered, or an Answerer


class Peer:
    """A server in a thread; `asked` are the requests so far."""

    def __init__(self, routes: Routes, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                named = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, named, self.rfile.read(size))
                peer.asked.append(asked)
                answer = routes.get(f"{asked.method} {asked.path}", Given({"error": "not here"}, 404))
                given = answer(asked) if callable(answer) else answer
                given = given if isinstance(given, Given) else Given(given)
                headers = {"Content-Length": str(len(given.data))} | given.headers
                self.send_response(given.status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(given.data)
                if int(headers["Content-Length"]) != len(given.data):
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
def serving(routes: Routes, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """Such a server on a free port."""
    peer = Peer(routes, tls)
    thread = threading.Thread(target=peer.serve, daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        peer.stop()
        thread.join(10)


def triton(infer: Answerer | None = None, **changes: Any) -> dict[str, Any]:
    """As Triton has it: an index in place of a list of models, and the binary form."""
    about = {"name": "scale", "versions": ["1"], "platform": "onnxruntime_onnx"}
    about |= {"inputs": [INPUT], "outputs": [OUTPUT]} | changes
    return {
        "GET /v2": {"name": "triton", "version": "2.50.0", "extensions": TRITON},
        "POST /v2/repository/index": [{"name": "scale", "version": "1", "state": "READY"}],
        "GET /v2/models/scale": about,
        "POST /v2/models/scale/infer": infer or scaled,
    }


def mlserver(**changes: Any) -> dict[str, Any]:
    """As MLServer has it: no versions, no extensions, an id with every answer."""

    def infer(asked: Asked) -> Given:
        if LENGTH.lower() in asked.headers:
            return Given({"error": "Invalid JSON"}, 400)
        answer = scaled(asked).body
        del answer["model_version"]
        return Given({**answer, "id": str(uuid.uuid4()), "parameters": {}})

    about = {"name": "scale", "versions": [], "platform": "", "inputs": [], "outputs": [], "parameters": {}}
    return {
        "GET /v2": {"name": "mlserver", "version": "1.7.1", "extensions": []},
        "POST /v2/repository/index": [{"name": "scale", "version": None, "state": "READY", "reason": ""}],
        "GET /v2/models/scale": about | changes,
        "POST /v2/models/scale/infer": infer,
    }


def kserve() -> dict[str, Any]:
    """As KServe has it: a list of names, and both protocols; the binary form it speaks without saying so."""

    def predict(asked: Asked) -> Given:
        rows = np.array(json.loads(asked.body)["instances"], "<f4")
        return Given({"predictions": (rows @ WEIGHTS).tolist()})

    return triton(versions=None) | {
        "GET /v2": {"name": "kserve", "version": "0.15.0", "extensions": ["model_repository_extension"]},
        "GET /v2/models": {"models": ["scale"]},
        "GET /v1/models/scale": {"name": "scale", "ready": "True"},
        "POST /v1/models/scale:predict": predict,
    }


def scaled(asked: Asked) -> Given:
    """The rows times WEIGHTS, as JSON or in the binary form, as they were asked for."""
    length = asked.headers.get(LENGTH.lower())
    head = json.loads(asked.body[: int(length)] if length else asked.body)
    (entry,) = head["inputs"]
    size = entry.get("parameters", {}).get("binary_data_size")
    values = np.array(entry["data"], "<f4") if size is None else np.frombuffer(asked.body[-size:], "<f4")
    result = values.reshape(entry["shape"]) @ WEIGHTS
    about: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": list(result.shape)}
    answer = {"model_name": "scale", "model_version": "1", "outputs": [about]}
    if not head.get("parameters", {}).get("binary_data_output"):
        about["data"] = result.ravel().tolist()
        return Given(answer)
    about["parameters"] = {"binary_data_size": result.nbytes}
    text = json.dumps(answer).encode()
    return Given(text + result.tobytes(), headers={LENGTH: str(len(text))})
