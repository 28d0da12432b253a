"""Model: one version of one model, open and ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from turnpike.service.artifact.manifest import Gate, Interval, Manifest
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.signature import Signature
from turnpike.service.batching.batcher import Batcher
from turnpike.service.gates.drift import DriftMonitor
from turnpike.service.inference_types import Array
from turnpike.service.telemetry.counters import ModelCounters

CachedAnswers = dict[Callable[["Model"], bytes], bytes]


@dataclass(frozen=True)
class Model:
    """Everything that a request needs of one model version.

    The loader creates it and the registry holds it. Nothing closes it: it is freed after the last request
    that uses it.
    """

    name: str
    version: int
    path: Path
    # number of the load in the process; what is kept for one load is not used for the next of the same file
    serial: int
    # SHA-256 of the file
    digest: str
    # size of the file
    bytes: int
    manifest: Manifest | None
    signature: Signature
    runtime: Runtime
    # the file's own values of the tensors that levers override
    biases: Mapping[str, Array]
    # True if the first public output has class probabilities, False for logits, None if it has neither
    distribution: bool | None
    batcher: Batcher
    counters: ModelCounters
    drift: DriftMonitor | None
    # responses that depend on the file alone, by the function that renders them
    cached_answers: CachedAnswers = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.manifest.labels if self.manifest else ()

    @property
    def predicts_number(self) -> bool:
        return self.manifest is not None and self.manifest.task == "number"

    @property
    def interval(self) -> Interval | None:
        return self.manifest.interval if self.manifest else None

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        return self.manifest.gates if self.manifest else ()
