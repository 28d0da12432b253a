"""Writes the report: one self-contained HTML page, and the same figures as JSON."""

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
    """Write index.html and report.json into a folder, each complete or not at all; returns the page."""
    with replacing(folder / "report.json") as draft:
        draft.write_text(json.dumps(report_json(report), allow_nan=False) + "\n", encoding="utf-8")
    path = folder / "index.html"
    with replacing(path) as draft:
        draft.write_text(render_page(report), encoding="utf-8")
    return path


def report_json(report: ReportData) -> dict[str, Any]:
    """All figures of the page; NaN becomes null."""
    return {
        "manifest": report.manifest.model_dump(mode="json"),
        "inputs": report.inputs,
        "outputs": report.outputs,
        "size": report.size,
        "warnings": report.warnings,
        "seconds": dict(report.seconds),
        "decades": report.decades,
        "histograms": dict(report.histograms),
        "panel": None
        if report.panel is None
        else {key: _plain(value) for key, value in vars(report.panel).items()},
        "comparison": None if report.comparison is None else asdict(report.comparison),
    }


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return [
        [float(f"{number:.6g}") if np.isfinite(number) else None for number in row] for row in value.tolist()
    ]
