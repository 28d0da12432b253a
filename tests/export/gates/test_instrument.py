"""Gates of many authors' networks are found, described, and moved by their levers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from tests.highways import carries, convolution, dense, fused, recurrent
from tests.highways.example import ExampleChain
from tests.highways.unusual import SUMS, UNITS, Unusual
from tests.support.gate_graphs import instrument_net, open_graph, shifted_biases, trace_net
from turnpike.export.gates.instrument import instrument
from turnpike.export.parity.reference import hidden_value
from turnpike.service.artifact.runtime import open_model

Array = np.ndarray[Any, np.dtype[Any]]

# networks whose shapes fit no others are exported on their own
SEPARATE = [*carries.EXAMPLES, *convolution.EXAMPLES, *recurrent.EXAMPLES]
CHAINS = [
    ExampleChain("rows", (*dense.ROWS, *fused.ROWS, *carries.ROWS)),
    ExampleChain("rows in time", (*dense.TIMES, *fused.TIMES, *carries.TIMES)),
    *(ExampleChain(example.name, (example,)) for example in SEPARATE),
]
ROWS = 3


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_gates_of_every_highway_are_found(chain: ExampleChain) -> None:
    """For each way to write a highway, T is what the network computes, and its levers close and open it."""
    net = chain.make().eval()
    model, instrumentation = instrument_net(net, chain.shape)
    x = torch.randn(ROWS, *chain.shape)
    expected, output = chain.expectations(net, x)
    assert len(instrumentation.gates) == len(expected)
    assert not instrumentation.warnings
    runtime = open_graph(model)
    feeds = {"x": x.numpy()}
    public = [tensor.name for tensor in runtime.outputs if tensor.name not in instrumentation.origins]
    np.testing.assert_allclose(runtime.run(feeds, public)[0], output, atol=1e-5)
    names = [gate.name for gate in instrumentation.gates]
    if all(gate.time is None for gate in instrumentation.gates):
        assert names == [f"layer{number:02}.transform_gate" for number in range(len(names))]
    for gate, values, truth in zip(instrumentation.gates, runtime.run(feeds, names), expected, strict=True):
        np.testing.assert_allclose(values, truth.values, atol=1e-5, err_msg=f"{gate.name} of {truth.part}")
        units = truth.values.shape[truth.unit_axis]
        description = (truth.part, gate.kind, gate.carry, gate.unit_axis, gate.units)
        assert description == (truth.part, *truth.form, truth.unit_axis, units)
        if truth.bias is not None:
            assert gate.bias is not None
            assert gate.bias.mean == pytest.approx(truth.bias)
    for shift, t in ((-1e4, 0.0), (1e4, 1.0)):
        shifted = feeds | shifted_biases(model, instrumentation.gates, shift)
        extremes = [(name, t) for name in names] + [
            (gate.carry_gate, 1 - t) for gate in instrumentation.gates if gate.carry_gate is not None
        ]
        for (name, value), gate_values in zip(
            extremes, runtime.run(shifted, [name for name, _ in extremes]), strict=True
        ):
            assert (gate_values == value).all(), name


def test_hidden_outputs_equal_their_origins() -> None:
    """Each is a value of the graph as it was, 1 minus it, or (1 + q) / 2."""
    signed = Unusual(SUMS["weight of a tanh"])
    model = trace_net(nn.Sequential(dense.CarryOnly(UNITS), dense.Layer(UNITS), signed), (UNITS,))
    before = ir.to_proto(model)
    origins = instrument(model).origins
    values = {origin.value for origin in origins.values()} - {value.name for value in before.graph.output}
    before.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values)
    feeds = {"x": np.random.default_rng(3).normal(size=(ROWS, UNITS)).astype(np.float32)}
    runtime = open_model(before.SerializeToString())
    expected = dict(zip(names := [t.name for t in runtime.outputs], runtime.run(feeds, names), strict=True))
    assert {(origin.scale, origin.offset) for origin in origins.values()} == {(1, 0), (-1, 1), (0.5, 0.5)}
    for (_, origin), value in zip(origins.items(), open_graph(model).run(feeds, list(origins)), strict=True):
        np.testing.assert_allclose(value, hidden_value(expected[origin.value], origin), atol=1e-6)
