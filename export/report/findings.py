"""Everything that a report shows, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from export.parity.error_stats import DECADES
from export.precision.compare import Comparison
from export.report.panel import Panel
from service.artifact.manifest import Manifest

# errors counted by magnitude: onnxruntime's and PyTorch's
Histograms = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Report:
    """What an export found out. `inputs` and `outputs` are as a person writes them.

    `size` is the file's, in bytes; `seconds` are what each step took. `histograms` count each tensor's
    errors in equal bins between the powers of ten of `decades`.
    """

    manifest: Manifest
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size: int
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    decades: tuple[float, float] = DECADES
    panel: Panel | None = None
    comparison: Comparison | None = None
