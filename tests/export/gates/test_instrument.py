"""Gates of many authors' networks are found, described, and moved by their levers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from export.gates.instrument import Instrumentation, instrument
from export.input_spec import InputSpec
from export.source import Source
from export.trace.trace import trace
from service.artifact.manifest import Gate
from service.artifact.runtime import Runtime, open_model
from tests.highways import carries, convolution, dense, fused, impostors, recurrent
from tests.highways.example import ExampleChain

Array = np.ndarray[Any, np.dtype[Any]]

# networks whose shapes fit no others are exported on their own
SEPARATE = [*carries.EXAMPLES, *convolution.EXAMPLES, *recurrent.EXAMPLES]
CHAINS = [
    ExampleChain("rows", (*dense.ROWS, *fused.ROWS, *carries.ROWS)),
    ExampleChain("rows in time", (*dense.TIMES, *fused.TIMES, *carries.TIMES)),
    *(ExampleChain(example.name, (example,)) for example in SEPARATE),
]
ROWS = 3


def trace_net(net: nn.Module, shape: tuple[int, ...]) -> ir.Model:
    x = InputSpec("x", "float32", ("batch", *shape))
    return trace(Source("net", "module", (x,), module=net.eval())).model


def open_graph(model: ir.Model) -> Runtime:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return open_model(proto.SerializeToString())


def shifted_biases(model: ir.Model, gates: tuple[Gate, ...], shift: float) -> dict[str, Array]:
    """The biases, with the part of each gate shifted by its levers."""
    biases: dict[str, Array] = {}
    for lever in {lever for gate in gates for lever in gate.levers}:
        value = model.graph.initializers[lever.tensor].const_value
        assert value is not None
        bias = biases.setdefault(lever.tensor, value.numpy().copy())
        bias.reshape(-1)[lever.start : lever.stop] += lever.sign * shift
    return biases


def instrument_net(net: nn.Module, shape: tuple[int, ...]) -> tuple[ir.Model, Instrumentation]:
    model = trace_net(net, shape)
    return model, instrument(model)


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


def test_other_networks_have_no_gates() -> None:
    """The graph is not changed."""
    model = trace_net(impostors.AllImpostors(), impostors.SHAPE)
    before = ir.to_proto(model).SerializeToString()
    assert instrument(model) == Instrumentation((), {}, ())
    assert ir.to_proto(model).SerializeToString() == before


def positions(instrumentation: Instrumentation) -> list[tuple[int, int | None, int | None]]:
    return [(gate.layer, gate.depth, gate.time) for gate in instrumentation.gates]


def test_recurrent_highways_have_layer_depth_and_time() -> None:
    """Micro-layers with different weights are depths, repeats are times, and one lever moves all times."""
    net = recurrent.Rhn(3, 4, depth=3).eval()
    model, instrumentation = instrument_net(net, (3, 3))
    assert positions(instrumentation) == [(0, depth, time) for time in range(3) for depth in range(3)]
    assert instrumentation.gates[4].name == "layer00.depth1.time1.transform_gate"
    assert {gate.carry for gate in instrumentation.gates} == {"identity"}
    runtime = open_graph(model)
    x = torch.randn(ROWS, 3, 3)
    feeds = {"x": x.numpy()}
    second = tuple(gate for gate in instrumentation.gates if gate.depth == 1)
    assert {gate.levers for gate in second} == {second[0].levers}
    assert [(lever.tensor, lever.start, lever.stop) for lever in second[0].levers] == [
        ("hidden_lin.1.bias", 4, 8)
    ]
    shifted = feeds | shifted_biases(model, second, 3.0)
    with torch.no_grad():
        net.hidden_lin[1].bias[4:] += 3
        np.testing.assert_allclose(runtime.run(shifted, [runtime.outputs[0].name])[0], net(x), atol=1e-5)


def test_cells_in_two_directions_are_two_layers() -> None:
    """The cells of one direction are the times of one layer; the carry of a GRU is its state h."""
    net = recurrent.GruCells(3, 4).eval()
    model, instrumentation = instrument_net(net, (2, 3))
    assert positions(instrumentation) == [(layer, None, time) for layer in range(2) for time in range(2)]
    assert {(gate.kind, gate.carry) for gate in instrumentation.gates} == {("coupled", "identity")}
    x = torch.randn(ROWS, 2, 3)
    first = open_graph(model).run({"x": x.numpy()}, ["layer00.time0.transform_gate"])[0]
    cell = net.ahead
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh)[:, 4:8]
    np.testing.assert_allclose(first, 1 - torch.sigmoid(z).detach(), atol=1e-5)
    bias = (cell.bias_ih + cell.bias_hh).detach()[4:8]
    assert instrumentation.gates[0].bias is not None
    assert instrumentation.gates[0].bias.mean == pytest.approx(-bias.mean().item(), abs=1e-6)


def test_lstm_cells_are_independent_gates() -> None:
    """In c' = f c + i g, T is i and C is f. Two layers that alternate in time are two layers."""
    net = recurrent.LstmCells(3, 4).eval()
    model, instrumentation = instrument_net(net, (2, 3))
    assert sorted(positions(instrumentation)) == [
        (layer, None, time) for layer in range(2) for time in range(2)
    ]
    assert {(gate.kind, gate.carry) for gate in instrumentation.gates} == {("independent", "identity")}
    x = torch.randn(ROWS, 2, 3)
    names = ["layer00.time0.transform_gate", "layer00.time0.carry_gate"]
    i, f = open_graph(model).run({"x": x.numpy()}, names)
    cell = net.lower
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh).detach()
    np.testing.assert_allclose(i, torch.sigmoid(z[:, :4]), atol=1e-5)
    np.testing.assert_allclose(f, torch.sigmoid(z[:, 4:8]), atol=1e-5)
    ranges = {(lever.start, lever.stop, lever.sign) for lever in instrumentation.gates[0].levers}
    assert ranges == {(0, 4, 1), (4, 8, -1)}


def test_the_state_of_an_sru_is_its_carry() -> None:
    """The cell of an SRU carries c in time, and its highway carries x."""
    model, instrumentation = instrument_net(recurrent.Sru(4), (3, 4))
    assert positions(instrumentation) == [(0, None, 0), (0, None, 1), (0, None, 2), (1, None, None)]
    x = torch.randn(ROWS, 3, 4)
    assert {gate.carry for gate in instrumentation.gates} == {"identity"}
    runtime = open_graph(model)
    weights = model.graph.initializers
    projected = (
        x.numpy() @ weights["all.weight"].const_value.numpy().T + weights["all.bias"].const_value.numpy()
    )
    f = 1 / (1 + np.exp(-projected[:, 1, 4:8]))
    np.testing.assert_allclose(
        runtime.run({"x": x.numpy()}, [instrumentation.gates[1].name])[0], 1 - f, atol=1e-5
    )
