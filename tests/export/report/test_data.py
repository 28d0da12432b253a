"""The gate panel: its grids are what the network computes."""

from __future__ import annotations

import numpy as np

from tests.support.tiny_highway import highway
from turnpike.export.measure.gate_profile import profile_gates
from turnpike.export.network import Rows
from turnpike.export.report.data import gate_panel
from turnpike.service.artifact.manifest import Gate, Lever

LABELS = ("cat", "dog", "cow")


def test_the_gate_panel_is_layers_by_units() -> None:
    net = highway(layers=3, units=6)
    runtime = net.open()
    x = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    rows = Rows({"x": x}, net.logits(x).argmax(1))
    panel = gate_panel(runtime, net.gates, net.biases, profile_gates(runtime, net.gates, rows), rows, LABELS)
    assert panel is not None
    assert rows.classes is not None
    t = np.array(net.gate_values(rows.inputs["x"]))
    np.testing.assert_array_equal(panel.biases[1], net.weights["layers.1.gate.bias"].astype(np.float64))
    assert panel.means is not None
    assert panel.gates is not None
    assert panel.outputs is not None
    np.testing.assert_allclose(panel.means, t.mean(1), atol=1e-5)
    np.testing.assert_allclose(panel.gates, t[:, 0], atol=1e-5)
    outputs = runtime.run({"x": rows.inputs["x"][:1]}, ["layer02.output"])[0]
    np.testing.assert_allclose(panel.outputs[2], outputs[0], atol=1e-6)
    assert panel.label == LABELS[int(rows.classes[0])]
    assert gate_panel(runtime, (), {}) is None


def test_carry_biases_are_shown_with_the_sign_of_t() -> None:
    """A lever's sign is applied, narrower layers end in NaN, and time steps of one layer are one line."""
    biases = {"fused": np.array([9.0, 9.0, 1.0, 2.0], np.float32), "wide": np.zeros(3, np.float32)}
    carry = Lever(tensor="fused", start=2, stop=4, sign=-1)
    wide = Lever(tensor="wide", start=0, stop=3, sign=1)
    common = {"kind": "coupled", "carry": "identity", "unit_axis": -1, "units": None}
    gates = [
        Gate(name="a", layer=0, time=0, levers=(carry,), **common),
        Gate(name="b", layer=0, time=1, levers=(carry,), **common),
        Gate(name="c", layer=1, levers=(wide,), **common),
        Gate(name="d", layer=2, **common),
    ]
    panel = gate_panel(highway().open(), gates, biases)
    assert panel is not None
    assert panel.layers == ("0", "1", "2")
    np.testing.assert_array_equal(panel.biases, [[-1, -2, np.nan], [0, 0, 0], [np.nan, np.nan, np.nan]])


def test_units_that_are_left_stay_in_their_columns() -> None:
    """The layer's output has all six units, of which a compressed file has kept two."""
    lever = Lever(tensor="bias", start=0, stop=2, sign=1)
    gate = (
        highway(layers=1, units=6)
        .gates[0]
        .model_copy(update={"units": 2, "kept": (1, 4), "levers": (lever,)})
    )
    panel = gate_panel(highway(layers=1, units=6).open(), [gate], {"bias": np.array([7.0, 8.0], np.float32)})
    assert panel is not None
    np.testing.assert_array_equal(panel.biases, [[np.nan, 7, np.nan, np.nan, 8, np.nan]])
