"""What an export found out, for people: one HTML page that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from export.report.data import ReportData
from export.report.page import render_page
from models.atomic import replacing


def write_report(folder: Path, report: ReportData) -> Path:
    """Write index.html and report.json into a folder, each whole or not at all; gives the page's path."""
    with replacing(folder / "report.json") as draft:
        draft.write_text(json.dumps(report_json(report), allow_nan=False) + "\n", encoding="utf-8")
    path = folder / "index.html"
    with replacing(path) as draft:
        draft.write_text(render_page(report), encoding="utf-8")
    return path


def report_json(report: ReportData) -> dict[str, Any]:
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
