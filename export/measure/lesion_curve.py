"""Each layer closed in its turn: what the network loses by it (the paper's Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from export.measure.accuracy import answers_classes, are_probabilities, changed, score
from export.measure.run_rows import answers, first, short
from export.source import Rows
from service.artifact.levers import overrides
from service.artifact.manifest import Gate, LayerLesion, LesionCurve
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]

# each layer takes a run over all of them
MOST_ROWS = 1000


def lesion_curve(
    runtime: Runtime, gates: Sequence[Gate], rows: Rows, output: str, biases: Mapping[str, Array]
) -> LesionCurve | None:
    """Accuracy, loss and answers flipped with each layer closed; None where no classes are known.

    A layer is closed at all its depths and times, and left out where one of its gates has no lever,
    or where what is left of the network gives no numbers.
    `biases` are the values that the file has for the levers. `output` holds logits or probabilities.
    """
    rows = first(rows, MOST_ROWS)
    if rows.classes is None:
        return None
    whole = answers(runtime, rows, output)
    if not answers_classes(whole, rows.classes):
        return None
    probabilities = are_probabilities(whole)
    before = score(whole, rows.classes, probabilities=probabilities)
    lesions = []
    for layer, its_gates in by_layer(gates).items():
        if not all(gate.levers for gate in its_gates):
            continue
        closed = answers(runtime, rows, output, overrides(biases, closed=its_gates))
        if not np.isfinite(closed).all():
            continue
        after = score(closed, rows.classes, probabilities=probabilities)
        lesions.append(
            LayerLesion(
                layer=layer,
                accuracy=short(after.accuracy),
                loss=short(after.loss),
                flipped=short(changed(closed, whole)),
            )
        )
    return LesionCurve(
        rows=len(rows), accuracy=short(before.accuracy), loss=short(before.loss), layers=tuple(lesions)
    )


def by_layer(gates: Sequence[Gate]) -> dict[int, list[Gate]]:
    """The gates of each layer, in order."""
    layers: dict[int, list[Gate]] = {}
    for gate in gates:
        layers.setdefault(gate.layer, []).append(gate)
    return dict(sorted(layers.items()))
