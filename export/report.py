"""What an export found out, for people: one HTML page that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from export.comparison import Comparison
from export.figures import DECADES
from export.panel import Panel
from models.atomic import replacing
from service.manifest import Manifest

# errors counted by magnitude: onnxruntime's and PyTorch's
Histograms = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. `inputs` and `outputs` are as a person writes them.

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


def write_report(folder: Path, report: Report) -> Path:
    """Write index.html and report.json into a folder, each whole or not at all; gives the page's path."""
    from export.report_page import page

    with replacing(folder / "report.json") as draft:
        draft.write_text(json.dumps(figures(report), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    path = folder / "index.html"
    with replacing(path) as draft:
        draft.write_text(page(report), encoding="utf-8")
    return path


def figures(report: Report) -> dict[str, Any]:
    """All figures of the page; what is no number is null."""
    return {
        "manifest": report.manifest.model_dump(mode="json"),
        "inputs": report.inputs,
        "outputs": report.outputs,
        "size": report.size,
        "warnings": report.warnings,
        "seconds": dict(report.seconds),
        "decades": report.decades,
        "histograms": dict(report.histograms),
        "panel": None if report.panel is None else {k: _plain(v) for k, v in vars(report.panel).items()},
        "comparison": None if report.comparison is None else asdict(report.comparison),
    }


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return [[float(f"{x:.6g}") if np.isfinite(x) else None for x in row] for row in value.tolist()]
