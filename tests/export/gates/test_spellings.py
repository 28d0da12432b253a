"""Random spellings of highway networks, and networks that almost are highways.

`make endurance ARGS=tests/export/gates/test_spellings.py` tries 500 of the first and 200 of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from tests.highways.spellings import UNITS, Spelled
from tests.support.gate_graphs import open_graph, shifted_biases, trace_net
from turnpike.export.gates.instrument import instrument

ROWS, TIMES = 3, 4
TOLERANCE = 1e-4
# near misses in which no sigmoid multiplies anything
UNGATED = ("a mask",)


SPELLINGS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20)),
    *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.thorough]) for seed in range(20, 60)),
    *(pytest.param(seed, marks=pytest.mark.endurance) for seed in range(60, 560)),
]
NEAR_MISSES = [
    0,
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10)),
    *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.thorough]) for seed in range(10, 30)),
    *(pytest.param(seed, marks=pytest.mark.endurance) for seed in range(30, 230)),
]


@pytest.mark.parametrize("seed", SPELLINGS)
def test_gates_are_found_in_every_spelling(seed: int) -> None:
    """Each is found with its kind, its carry and its values, and its lever closes the layer."""
    net = Spelled(seed).eval()
    model = trace_net(net, (TIMES, UNITS))
    public = str(model.graph.outputs[0].name)
    instrumentation = instrument(model)
    forms = [(layer.spelling.kind, "identity") for layer in net.layers]
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == forms, str(net)
    assert instrumentation.warnings == (), str(net)
    x = torch.randn(ROWS, TIMES, UNITS)
    with torch.no_grad():
        y, _, gates = net.run(x)
    runtime = open_graph(model)
    feeds: dict[str, Any] = {"x": x.numpy()}
    output, *arrays = runtime.run(feeds, [public, *(gate.name for gate in instrumentation.gates)])
    np.testing.assert_allclose(output, y, atol=TOLERANCE)
    for number, (gate, array) in enumerate(zip(instrumentation.gates, arrays, strict=True)):
        where = f"{gate.name} of {net}"
        values = np.moveaxis(array, gate.unit_axis, -1)
        np.testing.assert_allclose(values, gates[number], atol=TOLERANCE, err_msg=where)
        with torch.no_grad():
            closed, _, _ = net.run(x, closed=number)
        biases = shifted_biases(model, (gate,), -1e4)
        (output,) = runtime.run(feeds | biases, [public])
        np.testing.assert_allclose(output, closed, atol=TOLERANCE, err_msg=f"{where}, closed")


@pytest.mark.parametrize("seed", NEAR_MISSES)
def test_near_misses_have_no_gates(seed: int) -> None:
    """Every sigmoid that multiplies something is listed with a reason."""
    net = Spelled(seed, near_misses=True).eval()
    model = trace_net(net, (TIMES, UNITS))
    before = ir.to_proto(model).SerializeToString()
    instrumentation = instrument(model)
    assert instrumentation.gates == (), str(net)
    gated = [layer for layer in net.layers if layer.spelling.mix not in UNGATED]
    assert len(instrumentation.other_gates) >= len(gated), str(net)
    assert all(other.reason for other in instrumentation.other_gates)
    nodes = {node.name for node in model.graph}
    assert nodes == {node.name for node in ir.from_proto(onnx.ModelProto.FromString(before)).graph}
