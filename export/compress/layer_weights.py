"""Makes the importance of units comparable between layers: by what changes of a layer do to the output.

Layers have states of different scales, and a change early in a network passes through more layers than one at
its end. So the same change |y - x| may turn answers in one layer, and do nothing in another.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from export.compress.trials import Cutter
from export.measure.run_rows import first_rows, output_for_rows
from export.source import Array, Rows

# rows to measure the weights on: they are means over rows, units and outputs
WEIGHT_ROWS = 256
# share of a layer's units that are removed: the least important ones, which are those that will go
REMOVED_SHARE = 0.25


def weigh_layers(cutter: Cutter, importance: Mapping[str, Array], rows: Rows) -> dict[str, Array]:
    """The importance of each unit, multiplied by the weight of its layer.

    The weight is how far the output moves (root mean square) if the least important units of this layer alone
    are removed, divided by the change of these units.
    """
    rows = first_rows(rows, WEIGHT_ROWS)
    whole = output_for_rows(cutter.runtime, rows, cutter.output).astype(np.float64)
    every_unit = {name: list(range(len(units))) for name, units in importance.items()}
    weights: dict[str, float] = {}
    for name, units in importance.items():
        # units that are removed already change nothing
        order = [unit for unit in np.argsort(units, kind="stable").tolist() if units[unit] > 0]
        removed = order[: max(1, round(REMOVED_SHARE * len(order)))]
        change = float(np.linalg.norm(units[removed]))
        cut = cutter.cut({**every_unit, name: sorted({*range(len(units))} - {*removed})})
        moved = output_for_rows(cut.runtime, rows, cutter.output) - whole
        if change > 0 and (rms := float(np.sqrt(np.mean(moved**2)))) > 0:
            weights[name] = rms / change
    # a layer whose units change nothing, or not the output, has no weight of its own
    usual = float(np.median(list(weights.values()))) if weights else 1.0
    return {name: weights.get(name, usual) * units for name, units in importance.items()}
