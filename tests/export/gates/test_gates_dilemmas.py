"""What is done about gates where something cannot be told, or must not be touched."""

from __future__ import annotations

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
from service.artifact.levers import override_biases
from service.artifact.runtime import Runtime, open_model
from tests.highways import convolution, dense, dilemmas, recurrent


def offered(net: nn.Module, *inputs: str) -> tuple[ir.Model, Instrumentation, Runtime]:
    named = tuple(InputSpec(name, "float32", ("batch", 4)) for name in inputs or ("x",))
    model = trace(Source("net", "module", named, module=net.eval())).model
    found = instrument(model)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return model, found, open_model(proto.SerializeToString())


def biases(model: ir.Model, found: Instrumentation) -> dict[str, np.ndarray]:
    names = {lever.tensor for gate in found.gates for lever in gate.levers}
    return {name: model.graph.initializers[name].const_value.numpy() for name in names}


@pytest.mark.parametrize(("bias", "taken"), [(-1.0, "a transform gate"), (1.0, "a carry gate")])
def test_of_two_streams_the_bias_says_which_is_carried(bias: float, taken: str) -> None:
    """Of branches not made of each other: a gate that starts closed is T, an open one C, with a warning."""
    net = dilemmas.Fusion(bias)
    _, found, runtime = offered(net)
    (gate,) = found.gates
    assert (gate.kind, gate.carry) == ("coupled", "projected")
    assert found.warnings == (
        f"layer00.transform_gate: cannot tell from the graph which branch is carried; "
        f"took the gate for {taken}, because its bias is {bias:.3g} on average",
    )
    x = torch.randn(3, 4)
    z = torch.sigmoid(net.gate(x)).detach()
    (t,) = runtime.run({"x": x.numpy()}, [gate.name])
    np.testing.assert_allclose(t, z if bias < 0 else 1 - z, atol=1e-6)


def test_a_bias_that_others_use_is_let_be() -> None:
    """Its gates are given levers of their own, which move nothing else."""
    net = dilemmas.SharedBias()
    model, found, runtime = offered(net)
    first, second = found.gates
    assert {lever.tensor for gate in found.gates for lever in gate.levers}.isdisjoint(
        {"t.0.bias", "t.1.bias"}
    )
    x = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    moved = x | override_biases(biases(model, found), closed=[first])
    names = [first.name, second.name]
    assert (runtime.run(moved, names)[0] == 0).all()
    assert (runtime.run(moved, names)[1] > 0).all()


def test_what_goes_on_beside_a_logit_is_no_part_of_its_bias() -> None:
    """The bias is the gate's own, and so is the lever."""
    net = dilemmas.Stream()
    _, found, _ = offered(net)
    (gate,) = found.gates
    assert gate.bias is not None
    assert gate.bias.mean == pytest.approx(net.gate.bias.mean().item())
    assert [lever.tensor for lever in gate.levers] == ["gate.bias"]


def test_a_lever_costs_no_operator_where_a_map_has_room_for_a_bias() -> None:
    """A Gemm without a bias is given one, of zeros, with the gate's name."""
    net = nn.Sequential(dense.Layer(4, bias=False))
    model, found, _ = offered(net)
    assert [lever.tensor for lever in found.gates[0].levers] == ["layer00.transform_gate.bias"]
    assert [node.op_type for node in model.graph].count("Add") == 1


def test_the_bias_of_a_convolution_stays_a_constant() -> None:
    """onnxruntime lays convolutions out by their weights, so zeros are added behind them instead."""
    one = InputSpec("x", "float32", ("batch", 3, 6, 6))
    model = trace(Source("net", "module", (one,), module=convolution.Conv2dHighway(3).eval())).model
    (gate,) = instrument(model).gates
    assert [lever.tensor for lever in gate.levers] == ["layer00.transform_gate.bias"]
    assert gate.bias is not None


def test_a_lever_moves_the_gate_and_not_what_else_its_logit_makes() -> None:
    """H, made of the very logit, stays as it is."""
    net = dilemmas.SharedLogit()
    model, found, runtime = offered(net)
    x = torch.randn(3, 4)
    feeds = {"x": x.numpy()} | override_biases(biases(model, found), opened=found.gates)
    (y,) = runtime.run(feeds, [runtime.outputs[0].name])
    np.testing.assert_allclose(y, torch.tanh(net.both(x)).detach(), atol=1e-6)


def test_a_gate_that_is_public_and_used_twice_has_three_names() -> None:
    """Each block has its gate under a name of its own, callers find theirs, and what was called so stays."""
    net = dilemmas.Public()
    _, found, runtime = offered(net)
    public = runtime.outputs[1].name
    names = [gate.name for gate in found.gates]
    assert len({public, *names}) == 3
    assert names[0] == "highway_layer00.time0.transform_gate"
    x = torch.randn(3, 4)
    values = runtime.run({"x": x.numpy()}, [public, *names])
    expected = torch.sigmoid(net.layer00(x)).detach()
    for value in values:
        np.testing.assert_allclose(value, expected, atol=1e-6)


def test_a_cell_that_carries_two_states() -> None:
    """Of three gates that of what is new is T; one of the others carries, and the last is T as well."""
    net = recurrent.HighwayLstm(4)
    _, found, runtime = offered(net, "x", "below", "h", "c")
    assert [gate.kind for gate in found.gates] == ["independent", "independent"]
    assert len({gate.carry_gate for gate in found.gates}) == 1
    feeds = {
        name: np.random.default_rng(7).normal(size=(3, 4)).astype(np.float32)
        for name in ("x", "below", "h", "c")
    }
    both = torch.cat([torch.tensor(feeds["x"]), torch.tensor(feeds["h"])], 1)
    i = torch.sigmoid(net.i(both)).detach()
    values = runtime.run(feeds, [gate.name for gate in found.gates])
    assert any(np.allclose(value, i, atol=1e-6) for value in values)
