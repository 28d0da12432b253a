"""Values of section "Gates of this row": by unit, step and pixel."""

from __future__ import annotations

import numpy as np

from tests.support.page_modules import page_modules

GROUP = """async (data) => {
  const { unitsByPlace, meansByUnit, gateLayout, unitPicture } =
    await import("/dashboard/row/gate_values.js");
  const layout = gateLayout({ shape: [2, 3, 2, 2], data }, -3);
  const lists = (all) => all.map((list) => Array.from(list));
  const pictures = [unitPicture(layout, 1), unitPicture(layout, null)].map(lists);
  return [[...meansByUnit(layout)], lists(unitsByPlace(layout)), ...pictures];
}"""


def test_values_are_grouped_by_unit_and_pixel() -> None:
    """The unit axis may have steps before it and pixels after it."""
    array = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    with page_modules() as modules:
        units, places, one_unit, mean = modules.evaluate(GROUP, array.ravel().tolist())
    assert units == array.mean((0, 2, 3)).tolist()
    assert places == np.moveaxis(array, 1, -1).reshape(-1, 3).tolist()
    assert one_unit == array[:, 1].mean(0).tolist()
    assert mean == array.mean((0, 1)).tolist()
