"""A small highway network behind the routes to its gates, for tests that call them without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import numpy as np

from tests.support.fake_request import FakeRequest
from tests.support.manifests import PARITY
from tests.support.tiny_highway import Gated
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.service.api import gates, lesion, model_facts
from turnpike.service.api.context import ServiceContext
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.manifest import Gate, LayerProfile, Manifest, Profile
from turnpike.service.config.settings import Settings
from turnpike.service.inference_types import InferenceResult
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.registry.loader import load
from turnpike.service.registry.model import Model
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.scan import ModelFile, file_identity
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Router
from turnpike.service.telemetry.counters import RequestCounters

Array = np.ndarray[Any, np.dtype[Any]]

BINS = 20
LABELS = ("ash", "birch", "cedar")


def profile_of(gates: tuple[Gate, ...], values: list[Array]) -> Profile:
    """The profile of these gate values, computed with NumPy."""
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
class SingleModelRegistry:
    """A registry of one model."""

    model: Model

    def find(self, name: str, version: str | None = None) -> Model:
        assert name == self.model.name
        assert version in (None, str(self.model.version))
        return self.model


class FakeSupervisor:
    """Returns the snapshots that a test sets, as if they came from all workers."""

    def __init__(self) -> None:
        self.snapshots: list[dict[str, Any]] = []

    async def ask(self, what: str, argument: Any = None) -> Any:
        assert what == "snapshots"
        return self.snapshots


class GatesClient:
    """Calls the endpoints directly: their errors are raised, not turned into responses."""

    @classmethod
    def of(cls, folder: Path, gated: Gated, manifest: Manifest, **overrides: Any) -> GatesClient:
        """A client of this network, which is written into the folder."""
        path = folder / "model.onnx"
        path.write_bytes(embed_manifest(gated.model, manifest))
        return cls(path, **overrides)

    def __init__(self, path: Path, **overrides: Any) -> None:
        file = ModelFile("net", 3, path, file_identity(path.stat()))
        settings = Settings(**overrides)
        counters = RequestCounters()
        self.model = load(file, settings, counters, 1)
        self.workers = FakeSupervisor()
        self.results: list[InferenceResult] = []
        self.budget = MemoryBudget(1 << 30)
        self.context = ServiceContext(
            settings=settings,
            limits=RequestLimits(),
            registry=cast("ModelRegistry", SingleModelRegistry(self.model)),
            counters=counters,
            auth=Authenticator(),
            budget=self.budget,
            bodies=BodyReader(self.budget, limit=1 << 30, seconds=10),
            supervisor=self.workers,
        )
        self.router = Router(_no_route)
        for module in (gates, lesion, model_facts):
            module.add_routes(self.router, self.context)

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        header: int | None = None,
        more_headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[dict[bytes, bytes], bytes]:
        """The headers and the body of an answer, whose status must be 200.

        `header` is the length of the JSON at the start of the body in bytes; if None, all of it is JSON.
        """
        headers = [*more_headers]
        if header is not None:
            headers.append((b"inference-header-content-length", str(header).encode()))
        method = "GET" if body is None else "POST"
        request = _RecordedRequest(
            self.results,
            method,
            f"/v2/models/net/{path}",
            body or b"",
            headers=headers,
            query=urlencode(query or {}).encode(),
            content_length=len(body or b""),
        )
        match = self.router.match(request.head)
        request.path_params = match.params
        try:
            response = asyncio.run(_answer(match.route.endpoint(request)))
        finally:
            self.budget.release(request)
            assert self.budget.bytes == 0
        assert response.status == 200
        lines = [line.partition(b": ") for line in response.lines.splitlines()]
        return {name: value for name, _, value in lines}, response.body

    def gates(self, x: Array, query: Mapping[str, str] | None = None, **more: Any) -> Any:
        """The parsed answer of the gates route to these rows."""
        return json.loads(self.ask("gates", infer(x, **more), query)[1])

    def lesion(self, x: Array, **more: Any) -> Any:
        """The parsed answer of the lesion route to these rows, with further fields of the body."""
        return json.loads(self.ask("lesion", infer(x, **more))[1])


class _RecordedRequest(FakeRequest):
    """Records the inference result that the endpoint reports."""

    def __init__(self, results: list[InferenceResult], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._results = results

    def record_inference(self, name: str, version: int, result: InferenceResult, ended_ns: int) -> None:
        self._results.append(result)


async def _answer(awaitable: Awaitable[Response | None]) -> Response:
    response = await awaitable
    assert response is not None
    return response


async def _no_route(request: Request) -> Response:
    raise AssertionError(f"there is no route {request.head.path}")


def random_rows(count: int, seed: int = 0) -> Array:
    """Rows for a network of `tiny_highway`."""
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


def array_of(tensor: dict[str, Any]) -> Array:
    """The array of a tensor in JSON."""
    return np.array(tensor["data"], np.float32).reshape(tensor["shape"])


def infer(x: Array, **more: Any) -> bytes:
    """The body of an infer request in JSON, with these further fields."""
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    return json.dumps({"inputs": [tensor], **more}).encode()
