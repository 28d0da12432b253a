"""One version of one model, open and ready to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from service.artifact.manifest import Gate, Manifest
from service.artifact.runtime import Runtime, Signature
from service.batching.batcher import Batcher
from service.gates.drift import DriftMonitor
from service.inference_types import Array
from service.telemetry.counters import ModelCounters

CachedAnswers = dict[Callable[["Model"], bytes], bytes]


@dataclass(frozen=True)
class Model:
    """Everything that answers for one version. Made by the loader, kept on the shelf, closed by nobody:
    it goes when the last request that holds it has gone."""

    name: str
    version: int
    path: Path
    # SHA-256 of the file
    digest: str
    bytes: int
    manifest: Manifest | None
    signature: Signature
    runtime: Runtime
    # the values that the file has for the levers' tensors
    biases: Mapping[str, Array]
    # whether the first public output is a distribution already, or logits; None where it is neither
    distribution: bool | None
    batcher: Batcher
    counters: ModelCounters
    drift: DriftMonitor | None
    # answers that follow from the file alone, by what makes them
    cached_answers: CachedAnswers = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.manifest.labels if self.manifest else ()

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        return self.manifest.gates if self.manifest else ()
