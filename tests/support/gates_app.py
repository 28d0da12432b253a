"""A small highway network behind the routes to its gates, for tests that ask it without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import numpy as np
from starlette.routing import Router
from starlette.types import Message, Receive

from export.output.model_bytes import embed_manifest
from service.api.context import ServiceContext
from service.api.gates import routes
from service.artifact.limits import RequestLimits
from service.artifact.manifest import Gate, LayerProfile, Manifest, Parity, Profile
from service.config.settings import Settings
from service.http.auth import Authenticator
from service.http.body import MemoryBudget
from service.inference_types import InferenceResult, Waiter
from service.registry.loader import load
from service.registry.model import Model
from service.registry.registry import ModelRegistry
from service.repository.scan import ModelFile, file_identity
from service.telemetry.counters import RequestCounters
from tests.support.tiny_highway import Gated

Array = np.ndarray[Any, np.dtype[Any]]

BINS = 20
LABELS = ("ash", "birch", "cedar")
PARITY = Parity(
    reference="by hand",
    providers=("CPUExecutionProvider",),
    seed=0,
    batches=(),
    tensors=(),
    identical=0,
    derived=0,
    ulp=0,
)


def profile_of(gates: tuple[Gate, ...], values: list[Array]) -> Profile:
    """The profile of gates' values, by NumPy's own statistics."""
    levels = (0.05, 0.5, 0.95)
    return Profile(
        rows=len(values[0]),
        digest="rows",
        epsilon=0.1,
        levels=levels,
        layers=tuple(
            LayerProfile(
                gate=gate.name,
                mean=float(t.mean()),
                sd=float(t.std()),
                quantiles=tuple(np.quantile(t, levels).tolist()),
                closed=float((t < 0.1).mean()),
                open=float((t > 0.9).mean()),
                histogram=tuple((np.histogram(t, BINS, (0, 1))[0] / t.size).tolist()),
                units=tuple(t.mean(0).tolist()),
                units_sd=tuple(t.std(0).tolist()),
            )
            for gate, t in zip(gates, values, strict=True)
        ),
    )


def manifest_of(gated: Gated, profile: Profile | None = None, labels: tuple[str, ...] = LABELS) -> Manifest:
    return Manifest(
        name="net",
        version=3,
        source="by hand",
        outputs=("logits",),
        labels=labels,
        gates=gated.gates,
        parity=PARITY,
        profile=profile,
        weights="0" * 64,
        tools={},
    )


@dataclass
class Told:
    """What the endpoints tell of their runs."""

    answers: list[InferenceResult] = field(default_factory=list)
    query: bytes = b""

    def ran(self, model: Model, answer: InferenceResult) -> None:
        self.answers.append(answer)

    def future(self) -> Waiter:
        return asyncio.get_running_loop().create_future()


@dataclass
class OneModel:
    """A shelf with one model on it."""

    model: Model

    def find(self, name: str, version: str | None = None) -> Model:
        assert name == self.model.name
        assert version in (None, str(self.model.version))
        return self.model


class Workers:
    """What other workers answer when they are asked for what they have counted."""

    def __init__(self) -> None:
        self.snapshots: list[dict[str, Any]] = []

    async def ask(self, what: str, argument: Any = None) -> Any:
        assert what == "snapshots"
        return self.snapshots


class Asker:
    """Asks the routes as the server would; errors come as they are raised."""

    @classmethod
    def of(cls, folder: Path, gated: Gated, manifest: Manifest, **settings: Any) -> Asker:
        """Asks a network of ours, written into a folder."""
        path = folder / "model.onnx"
        path.write_bytes(embed_manifest(gated.model, manifest))
        return cls(path, **settings)

    def __init__(self, path: Path, **settings: Any) -> None:
        found = ModelFile("net", 3, path, file_identity(path.stat()))
        chosen = Settings(**settings)
        meter = RequestCounters()
        self.model = load(found, chosen, meter, 1)
        self.workers = Workers()
        self.told = Told()
        self.held = MemoryBudget(1 << 30, limit=1 << 30, seconds=10)
        self.routes = routes(
            ServiceContext(
                settings=chosen,
                limits=RequestLimits(),
                shelf=cast("ModelRegistry", OneModel(self.model)),
                meter=meter,
                access=Authenticator(),
                held=self.held,
                control=self.workers,
            )
        )
        self._router = Router(self.routes)

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        header: int | None = None,
    ) -> tuple[dict[bytes, bytes], bytes]:
        """The headers and the body of an answer, which is 200 where there is any.

        `header` is how much of the body is JSON.
        """
        headers = [] if header is None else [(b"inference-header-content-length", str(header).encode())]
        scope = {
            "type": "http",
            "method": "GET" if body is None else "POST",
            "path": f"/v2/models/net/{path}",
            "headers": headers,
            "exchange": self.told,
        }
        self.told.query = urlencode(query or {}).encode()
        return asyncio.run(self._ask(scope, _client(body or b"")))

    def gates(self, x: Array, query: Mapping[str, str] | None = None, **more: Any) -> Any:
        """The JSON answer to rows, for the gates' route."""
        return json.loads(self.ask("gates", infer(x, **more), query)[1])

    def lesion(self, x: Array, **more: Any) -> Any:
        """The JSON answer to rows and what else the body has, for the lesions' route."""
        return json.loads(self.ask("lesion", infer(x, **more))[1])

    async def _ask(self, scope: dict[str, Any], receive: Receive) -> tuple[dict[bytes, bytes], bytes]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            await self._router(scope, receive, send)
        finally:
            assert self.held.bytes == 0
        assert sent[0]["status"] == 200
        return dict(sent[0]["headers"]), b"".join(message["body"] for message in sent[1:])


def _client(body: bytes) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def infer(x: Array, **more: Any) -> bytes:
    """The body of an infer request in JSON, and what else it is to have."""
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    return json.dumps({"inputs": [tensor], **more}).encode()
