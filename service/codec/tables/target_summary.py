"""Compares the predictions of a table with its column of what is predicted, if the table has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnpike.common.columns import is_blank, parse_number, word_of
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.inference_types import Array


def target_summary(
    manifest: Manifest | None, others: Mapping[str, Sequence[str]], output: Array
) -> dict[str, Any] | None:
    """Accuracy, or R2 and the mean absolute error, of the first output; None without the model's target.

    Rows without a value of the target are left out; `rows` counts the others.
    """
    if manifest is None or not manifest.target or manifest.target not in others:
        return None
    cells = others[manifest.target]
    known = np.array([not is_blank(cell, "category") for cell in cells])
    if manifest.task == "number":
        if output.size != len(cells):
            return None
        numbers = [parse_number(cell) for cell in cells]
        known = np.array([number is not None for number in numbers])
        wanted = np.array([number for number in numbers if number is not None], np.float64)
        figures = _number_figures(wanted, output.reshape(-1)[known].astype(np.float64))
    elif output.shape[1:] == (len(manifest.labels),) and manifest.labels:
        best = output.argmax(1)
        hits = [manifest.labels[place] == word_of(cell) for place, cell in zip(best, cells, strict=True)]
        figures = {"accuracy": _mean(np.array(hits)[known])}
    else:
        return None
    return {"target": manifest.target, "rows": int(known.sum()), **figures}


def _number_figures(wanted: Array, predicted: Array) -> dict[str, float | None]:
    spread = np.square(wanted - wanted.mean()).sum() if len(wanted) else 0.0
    r2 = 1 - float(np.square(wanted - predicted).sum() / spread) if spread else None
    return {"r2": r2, "mae": _mean(np.abs(wanted - predicted))}


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None
