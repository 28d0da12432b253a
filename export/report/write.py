"""Writes the report: one self-contained HTML page, and the same figures as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from turnpike.common.durable_files import write_texts
from turnpike.export.report.data import ReportData
from turnpike.export.report.page import render_page


def write_report(folder: Path, report: ReportData) -> Path:
    """Write index.html and report.json into a folder, both or none; returns the page."""
    path = folder / "index.html"
    text = json.dumps(report_json(report), allow_nan=False) + "\n"
    write_texts({folder / "report.json": text, path: render_page(report)})
    return path


def report_json(report: ReportData) -> dict[str, Any]:
    """All figures of the page; NaN becomes null."""
    return {
        "manifest": report.manifest.model_dump(mode="json"),
        "inputs": report.inputs,
        "outputs": report.outputs,
        "size": report.size,
        "warnings": report.warnings,
        "notes": report.notes,
        "seconds": dict(report.seconds),
        "decades": report.decades,
        "histograms": dict(report.histograms),
        "panel": None
        if report.panel is None
        else {key: _plain(value) for key, value in vars(report.panel).items()},
        "other_gates": report.other_gates,
        "plain": None if report.plain is None else asdict(report.plain),
        "kept": {
            layer.gate: {"units": len(layer.units), "of": layer.whole, "kept": layer.units}
            for layer in report.kept
        },
        "comparison": None if report.comparison is None else asdict(report.comparison),
    }


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return [
        [float(f"{number:.6g}") if np.isfinite(number) else None for number in row] for row in value.tolist()
    ]
