"""A model repository on disk with small highway networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.manifests import MANIFEST
from tests.support.tiny_highway import Gated, highway
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.service.artifact.manifest import LayerProfile, Profile
from turnpike.service.config.settings import Settings
from turnpike.service.registry.hooks import Hooks
from turnpike.service.registry.loader import load
from turnpike.service.registry.model import Model
from turnpike.service.repository.scan import MODEL_FILE, ModelFile, file_identity
from turnpike.service.telemetry.counters import RequestCounters
from turnpike.service.weights.cache import WeightsCache


def with_manifest(gated: Gated, **manifest: Any) -> bytes:
    """The network's file with a manifest; keyword arguments replace fields of the manifest."""
    fields = {"outputs": ("logits",), "labels": ("a", "b", "c"), "gates": gated.gates, **manifest}
    return embed_manifest(gated.model, MANIFEST.model_copy(update=fields))


def profile(gated: Gated) -> Profile:
    """A profile of the network's gates."""
    layers = tuple(
        LayerProfile(
            gate=gate.name, mean=0.5, sd=0.1, quantiles=(0.5,), closed=0, open=0, histogram=(0.5, 0.5),
            units=(0.5,), units_sd=(0.1,),
        )
        for gate in gated.gates
    )  # fmt: skip
    return Profile(rows=100, digest="0", epsilon=0.01, levels=(0.5,), layers=layers)


def put_model(root: Path, name: str = "net", version: int = 1, data: bytes | None = None) -> ModelFile:
    """Put a model into the repository in one step, as an export does; each version has other weights."""
    path = root / name / str(version) / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(".draft")
    draft.write_bytes(with_manifest(highway(seed=version)) if data is None else data)
    draft.replace(path)
    return ModelFile(name, version, path, file_identity(path.stat()))


def load_model(
    file: ModelFile, *, hooks: Hooks | None = None, weights: WeightsCache | None = None, **settings: Any
) -> Model:
    """Load a model as a worker does."""
    return load(file, Settings(**settings), RequestCounters(), 1, hooks=hooks, weights=weights)
