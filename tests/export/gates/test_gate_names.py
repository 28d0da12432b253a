"""Names of gates, and of values that have names already."""

from __future__ import annotations

import numpy as np
import torch

from tests.highways import edge_cases
from tests.support.gate_graphs import instrument_net, open_graph


def test_a_gate_that_is_public_and_used_twice_has_three_names() -> None:
    """Both gated sums name the gate, the public output keeps its name, and weights keep theirs."""
    net = edge_cases.Public()
    model, instrumentation = instrument_net(net, (4,))
    runtime = open_graph(model)
    public = runtime.outputs[1].name
    names = [gate.name for gate in instrumentation.gates]
    assert len({public, *names}) == 3
    assert names[0] == "highway_layer00.time0.transform_gate"
    x = torch.randn(3, 4)
    values = runtime.run({"x": x.numpy()}, [public, *names])
    expected = torch.sigmoid(net.layer00(x)).detach()
    for value in values:
        np.testing.assert_allclose(value, expected, atol=1e-6)
