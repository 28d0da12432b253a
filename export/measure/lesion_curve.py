"""Lesion curve: what the network loses when each layer is closed in turn (Figure 4 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnpike.export.measure.accuracy import are_probabilities, judge, share_changed
from turnpike.export.measure.run_rows import output_for_rows, round_figure, spread_indices, spread_rows
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.levers import override_biases
from turnpike.service.artifact.manifest import Gate, LayerLesion, LesionCurve
from turnpike.service.artifact.runtime import Runtime

# each layer needs a run over all rows
MAX_LESION_ROWS = 1000


def lesion_curve(
    runtime: Runtime, gates: Sequence[Gate], rows: Rows, output: str, biases: Mapping[str, Array]
) -> LesionCurve | None:
    """Accuracy, loss and share of changed answers with each layer closed.

    A layer is closed at all its depths and time steps. It is left out if one of its gates has no lever, or
    if the network no longer gives finite numbers without it.

    Args:
        runtime: The open model.
        gates: Its gates.
        rows: Rows of data with their classes, or the numbers to predict.
        output: The output with logits or probabilities, or with a number.
        biases: The values of the levers in the file, by the names of their tensors.

    Returns:
        The curve, or None if the true answers are not known, or the output does not answer with classes or
        a number.
    """
    rows = spread_rows(rows, MAX_LESION_ROWS)
    if rows.classes is None and rows.numbers is None:
        return None
    intact = output_for_rows(runtime, rows, output)
    before = judge(intact, rows)
    if before is None:
        return None
    probabilities = rows.classes is not None and are_probabilities(intact)
    lesions = []
    for layer, layer_gates in gates_by_layer(gates).items():
        if not all(gate.levers for gate in layer_gates):
            continue
        closed = output_for_rows(runtime, rows, output, override_biases(biases, closed=layer_gates))
        after = judge(closed, rows, probabilities=probabilities)
        if after is None:
            continue
        lesions.append(
            LayerLesion(
                layer=layer,
                accuracy=round_figure(after.accuracy),
                loss=round_figure(after.loss),
                flipped=round_figure(share_changed(closed, intact, before.loss)),
            )
        )
    return LesionCurve(
        rows=len(rows),
        accuracy=round_figure(before.accuracy),
        loss=round_figure(before.loss),
        layers=tuple(lesions),
    )


def flipped_row(
    runtime: Runtime,
    gates: Sequence[Gate],
    rows: Rows,
    output: str,
    biases: Mapping[str, Array],
    curve: LesionCurve,
) -> int | None:
    """The number of the row whose right answer changes most clearly when a layer is closed.

    The layer is the one that changes most answers in `curve`. None if it changes no right answer, or the rows
    have no classes.
    """
    layer = max(curve.layers, key=lambda lesion: lesion.flipped, default=None)
    if layer is None or rows.classes is None or rows.classes.ndim != 1:
        return None
    some = spread_rows(rows, MAX_LESION_ROWS)
    closed_gates = gates_by_layer(gates)[layer.layer]
    intact = output_for_rows(runtime, some, output)
    closed = output_for_rows(runtime, some, output, override_biases(biases, closed=closed_gates))
    each = np.arange(len(some))
    answers = intact.argmax(-1)
    margins = closed.max(-1) - closed[each, answers]
    margins[answers != some.classes] = 0
    best = int(margins.argmax())
    return spread_indices(len(rows), MAX_LESION_ROWS)[best] if margins[best] > 0 else None


def gates_by_layer(gates: Sequence[Gate]) -> dict[int, list[Gate]]:
    """The gates of each layer, in the order of the layers."""
    layers: dict[int, list[Gate]] = {}
    for gate in gates:
        layers.setdefault(gate.layer, []).append(gate)
    return dict(sorted(layers.items()))
