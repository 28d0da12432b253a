"""Each layer closed in its turn: what the network loses by it (the paper's Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from export.measure.accuracy import are_probabilities, is_classification, score, share_changed
from export.measure.run_rows import first_rows, output_for_rows, round_figure
from export.source import Rows
from service.artifact.levers import override_biases
from service.artifact.manifest import Gate, LayerLesion, LesionCurve
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]

# each layer takes a run over all of them
MAX_LESION_ROWS = 1000


def lesion_curve(
    runtime: Runtime, gates: Sequence[Gate], rows: Rows, output: str, biases: Mapping[str, Array]
) -> LesionCurve | None:
    """Accuracy, loss and answers flipped with each layer closed; None where no classes are known.

    A layer is closed at all its depths and times, and left out where one of its gates has no lever,
    or where what is left of the network gives no numbers.
    `biases` are the values that the file has for the levers. `output` holds logits or probabilities.
    """
    rows = first_rows(rows, MAX_LESION_ROWS)
    if rows.classes is None:
        return None
    whole = output_for_rows(runtime, rows, output)
    if not is_classification(whole, rows.classes):
        return None
    probabilities = are_probabilities(whole)
    before = score(whole, rows.classes, probabilities=probabilities)
    lesions = []
    for layer, its_gates in gates_by_layer(gates).items():
        if not all(gate.levers for gate in its_gates):
            continue
        closed = output_for_rows(runtime, rows, output, override_biases(biases, closed=its_gates))
        if not np.isfinite(closed).all():
            continue
        after = score(closed, rows.classes, probabilities=probabilities)
        lesions.append(
            LayerLesion(
                layer=layer,
                accuracy=round_figure(after.accuracy),
                loss=round_figure(after.loss),
                flipped=round_figure(share_changed(closed, whole)),
            )
        )
    return LesionCurve(
        rows=len(rows),
        accuracy=round_figure(before.accuracy),
        loss=round_figure(before.loss),
        layers=tuple(lesions),
    )


def gates_by_layer(gates: Sequence[Gate]) -> dict[int, list[Gate]]:
    """The gates of each layer, in order."""
    layers: dict[int, list[Gate]] = {}
    for gate in gates:
        layers.setdefault(gate.layer, []).append(gate)
    return dict(sorted(layers.items()))
