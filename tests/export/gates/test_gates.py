"""Gates found in the graph, whoever wrote the code."""

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
from tests.highways.example import Chain

Array = np.ndarray[Any, np.dtype[Any]]

ALONE = [*carries.EXAMPLES, *convolution.EXAMPLES, *recurrent.EXAMPLES]
CHAINS = [
    Chain("rows", (*dense.ROWS, *fused.ROWS, *carries.ROWS)),
    Chain("rows in time", (*dense.TIMES, *fused.TIMES, *carries.TIMES)),
    *(Chain(example.name, (example,)) for example in ALONE),
]
ROWS = 3


def graph_of(net: nn.Module, shape: tuple[int, ...]) -> ir.Model:
    x = InputSpec("x", "float32", ("batch", *shape))
    return trace(Source("net", "module", (x,), module=net.eval())).model


def opened(model: ir.Model) -> Runtime:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return open_model(proto.SerializeToString())


def overrides(model: ir.Model, gates: tuple[Gate, ...], shift: float) -> dict[str, Array]:
    """The biases with every gate's part of them shifted."""
    made: dict[str, Array] = {}
    for lever in {lever for gate in gates for lever in gate.levers}:
        value = model.graph.initializers[lever.tensor].const_value
        assert value is not None
        bias = made.setdefault(lever.tensor, value.numpy().copy())
        bias.reshape(-1)[lever.start : lever.stop] += lever.sign * shift
    return made


def offered(net: nn.Module, shape: tuple[int, ...]) -> tuple[ir.Model, Instrumentation]:
    model = graph_of(net, shape)
    return model, instrument(model)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_gates_are_found_named_and_moved(chain: Chain) -> None:
    """Of each way to write a highway T is what the network itself computes, not g, and its levers move it."""
    net = chain.make().eval()
    model, found = offered(net, chain.shape)
    x = torch.randn(ROWS, *chain.shape)
    expected, answer = chain.expectations(net, x)
    assert len(found.gates) == len(expected)
    assert not found.warnings
    runtime = opened(model)
    feeds = {"x": x.numpy()}
    public = [tensor.name for tensor in runtime.outputs if tensor.name not in found.origins]
    np.testing.assert_allclose(runtime.run(feeds, public)[0], answer, atol=1e-5)
    names = [gate.name for gate in found.gates]
    if all(gate.time is None for gate in found.gates):
        assert names == [f"layer{number:02}.transform_gate" for number in range(len(names))]
    for gate, values, wanted in zip(found.gates, runtime.run(feeds, names), expected, strict=True):
        np.testing.assert_allclose(values, wanted.values, atol=1e-5, err_msg=f"{gate.name} of {wanted.part}")
        units = wanted.values.shape[wanted.unit_axis]
        said = (wanted.part, gate.kind, gate.carry, gate.unit_axis, gate.units)
        assert said == (wanted.part, *wanted.form, wanted.unit_axis, units)
        if wanted.bias is not None:
            assert gate.bias is not None
            assert gate.bias.mean == pytest.approx(wanted.bias)
    for shift, end in ((-1e4, 0.0), (1e4, 1.0)):
        moved = feeds | overrides(model, found.gates, shift)
        ends = [(name, end) for name in names] + [
            (gate.carry_gate, 1 - end) for gate in found.gates if gate.carry_gate is not None
        ]
        for (name, value), got in zip(ends, runtime.run(moved, [name for name, _ in ends]), strict=True):
            assert (got == value).all(), name


def test_what_is_no_highway_has_no_gates() -> None:
    """Sigmoids that gate nothing against its own input are left alone, and the graph as it was."""
    model = graph_of(impostors.All(), impostors.SHAPE)
    before = ir.to_proto(model).SerializeToString()
    assert instrument(model) == Instrumentation((), {}, ())
    assert ir.to_proto(model).SerializeToString() == before


def placed(gates: Instrumentation) -> list[tuple[int, int | None, int | None]]:
    return [(gate.layer, gate.depth, gate.time) for gate in gates.gates]


def test_a_recurrent_highway_is_layer_depth_and_time() -> None:
    """Micro-layers of other weights are depths, their repeats are times, and one lever moves all times."""
    net = recurrent.Rhn(3, 4, depth=3).eval()
    model, found = offered(net, (3, 3))
    assert placed(found) == [(0, depth, time) for time in range(3) for depth in range(3)]
    assert found.gates[4].name == "layer00.depth1.time1.transform_gate"
    assert {gate.carry for gate in found.gates} == {"identity"}
    runtime = opened(model)
    x = torch.randn(ROWS, 3, 3)
    feeds = {"x": x.numpy()}
    second = tuple(gate for gate in found.gates if gate.depth == 1)
    assert {gate.levers for gate in second} == {second[0].levers}
    assert [(lever.tensor, lever.start, lever.stop) for lever in second[0].levers] == [
        ("hidden_lin.1.bias", 4, 8)
    ]
    moved = feeds | overrides(model, second, 3.0)
    with torch.no_grad():
        net.hidden_lin[1].bias[4:] += 3
        np.testing.assert_allclose(runtime.run(moved, [runtime.outputs[0].name])[0], net(x), atol=1e-5)


def test_cells_in_two_directions_are_two_layers() -> None:
    """The cells of one direction are the times of one layer; h, which GRUs carry, is the identity carry."""
    net = recurrent.GruCells(3, 4).eval()
    model, found = offered(net, (2, 3))
    assert placed(found) == [(layer, None, time) for layer in range(2) for time in range(2)]
    assert {(gate.kind, gate.carry) for gate in found.gates} == {("coupled", "identity")}
    x = torch.randn(ROWS, 2, 3)
    first = opened(model).run({"x": x.numpy()}, ["layer00.time0.transform_gate"])[0]
    cell = net.ahead
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh)[:, 4:8]
    np.testing.assert_allclose(first, 1 - torch.sigmoid(z).detach(), atol=1e-5)
    bias = (cell.bias_ih + cell.bias_hh).detach()[4:8]
    assert found.gates[0].bias is not None
    assert found.gates[0].bias.mean == pytest.approx(-bias.mean().item(), abs=1e-6)


def test_lstms_are_independent_in_layers_and_times() -> None:
    """Of c' = f c + i g T is i and C is f; two layers that take turns in time are two layers."""
    net = recurrent.LstmCells(3, 4).eval()
    model, found = offered(net, (2, 3))
    assert sorted(placed(found)) == [(layer, None, time) for layer in range(2) for time in range(2)]
    assert {(gate.kind, gate.carry) for gate in found.gates} == {("independent", "identity")}
    x = torch.randn(ROWS, 2, 3)
    names = ["layer00.time0.transform_gate", "layer00.time0.carry_gate"]
    i, f = opened(model).run({"x": x.numpy()}, names)
    cell = net.lower
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh).detach()
    np.testing.assert_allclose(i, torch.sigmoid(z[:, :4]), atol=1e-5)
    np.testing.assert_allclose(f, torch.sigmoid(z[:, 4:8]), atol=1e-5)
    ranges = {(lever.start, lever.stop, lever.sign) for lever in found.gates[0].levers}
    assert ranges == {(0, 4, 1), (4, 8, -1)}


def test_a_state_is_the_carry_though_the_other_comes_straight_from_the_input() -> None:
    """An SRU's cell carries c in time, and its highway carries x."""
    model, found = offered(recurrent.Sru(4), (3, 4))
    assert placed(found) == [(0, None, 0), (0, None, 1), (0, None, 2), (1, None, None)]
    x = torch.randn(ROWS, 3, 4)
    assert {gate.carry for gate in found.gates} == {"identity"}
    runtime = opened(model)
    weights = model.graph.initializers
    both = x.numpy() @ weights["all.weight"].const_value.numpy().T + weights["all.bias"].const_value.numpy()
    f = 1 / (1 + np.exp(-both[:, 1, 4:8]))
    np.testing.assert_allclose(runtime.run({"x": x.numpy()}, [found.gates[1].name])[0], 1 - f, atol=1e-5)
