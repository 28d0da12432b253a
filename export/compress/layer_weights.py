"""Makes the changes of units comparable between layers: weighs them by what they do to the output.

Layers have states of different scales, and a change early in a network passes through more layers than one at
its end. So the same change |y - x| may turn answers in one layer, and do nothing in another.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from turnpike.export.compress.trials import Cutter
from turnpike.export.measure.run_rows import output_for_rows, spread_rows
from turnpike.export.network import Array, Rows

# rows to measure the weights on: they are means over rows, units and outputs
WEIGHT_ROWS = 256
# share of a layer's units that it loses: those that change least, which are those that will go
REMOVED_SHARE = 0.25


def weigh_layers(cutter: Cutter, changes: Mapping[str, Array], rows: Rows) -> dict[str, Array]:
    """The importance of each unit: its change, multiplied by the weight of its layer.

    The weight is how far the output moves (root mean square) if a layer loses the units that change least,
    divided by the change of these units.

    Args:
        cutter: Cuts the network.
        changes: How much each unit changes, by the name of the gate.
        rows: Rows to measure the weights on.
    """
    rows = spread_rows(rows, WEIGHT_ROWS)
    whole_output = output_for_rows(cutter.runtime, rows, cutter.output).astype(np.float64)
    every_unit = {name: list(range(len(layer_changes))) for name, layer_changes in changes.items()}
    weights: dict[str, float] = {}
    for name, layer_changes in changes.items():
        # units that are removed already change nothing
        order = [
            unit for unit in np.argsort(layer_changes, kind="stable").tolist() if layer_changes[unit] > 0
        ]
        removed = order[: max(1, round(REMOVED_SHARE * len(order)))]
        change = float(np.linalg.norm(layer_changes[removed]))
        cut = cutter.cut({**every_unit, name: sorted({*every_unit[name]} - {*removed})})
        moved = output_for_rows(cut.runtime, rows, cutter.output) - whole_output
        if change > 0 and (rms := float(np.sqrt(np.mean(moved**2)))) > 0:
            weights[name] = rms / change
    # a layer whose units change nothing, or not the output, has no weight of its own
    usual = float(np.median(list(weights.values()))) if weights else 1.0
    return {name: weights.get(name, usual) * layer_changes for name, layer_changes in changes.items()}
