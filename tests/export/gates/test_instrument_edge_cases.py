"""Gates whose carry or bias is unknown, and gates that share a tensor that a lever would change."""

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
from tests.highways import convolution, dense, edge_cases, recurrent


def instrument_net(net: nn.Module, *inputs: str) -> tuple[ir.Model, Instrumentation, Runtime]:
    specs = tuple(InputSpec(name, "float32", ("batch", 4)) for name in inputs or ("x",))
    model = trace(Source("net", "module", specs, module=net.eval())).model
    instrumentation = instrument(model)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return model, instrumentation, open_model(proto.SerializeToString())


def biases(model: ir.Model, instrumentation: Instrumentation) -> dict[str, np.ndarray]:
    names = {lever.tensor for gate in instrumentation.gates for lever in gate.levers}
    return {name: model.graph.initializers[name].const_value.numpy() for name in names}


@pytest.mark.parametrize(("bias", "guess"), [(-1.0, "a transform gate"), (1.0, "a carry gate")])
def test_the_carry_of_two_unrelated_branches_is_guessed_from_the_bias(bias: float, guess: str) -> None:
    """A gate with a negative bias is taken for T, with a positive one for C, and there is a warning."""
    net = edge_cases.Fusion(bias)
    _, instrumentation, runtime = instrument_net(net)
    (gate,) = instrumentation.gates
    assert (gate.kind, gate.carry) == ("coupled", "projected")
    assert instrumentation.warnings == (
        f"layer00.transform_gate: cannot tell from the graph which branch is carried; "
        f"took the gate for {guess}, because its bias is {bias:.3g} on average",
    )
    x = torch.randn(3, 4)
    z = torch.sigmoid(net.gate(x)).detach()
    (t,) = runtime.run({"x": x.numpy()}, [gate.name])
    np.testing.assert_allclose(t, z if bias < 0 else 1 - z, atol=1e-6)


def test_a_shared_bias_is_not_used_as_a_lever() -> None:
    """Its gates get levers of their own, which move nothing else."""
    net = edge_cases.SharedBias()
    model, instrumentation, runtime = instrument_net(net)
    first, second = instrumentation.gates
    assert {lever.tensor for gate in instrumentation.gates for lever in gate.levers}.isdisjoint(
        {"t.0.bias", "t.1.bias"}
    )
    x = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    shifted = x | override_biases(biases(model, instrumentation), closed=[first])
    names = [first.name, second.name]
    assert (runtime.run(shifted, names)[0] == 0).all()
    assert (runtime.run(shifted, names)[1] > 0).all()


def test_the_bias_of_a_residual_stream_is_not_that_of_the_gate() -> None:
    net = edge_cases.Stream()
    _, instrumentation, _ = instrument_net(net)
    (gate,) = instrumentation.gates
    assert gate.bias is not None
    assert gate.bias.mean == pytest.approx(net.gate.bias.mean().item())
    assert [lever.tensor for lever in gate.levers] == ["gate.bias"]


def test_a_gemm_without_a_bias_gets_a_lever() -> None:
    """The new bias is zero and has the name of the gate."""
    net = nn.Sequential(dense.Layer(4, bias=False))
    model, instrumentation, _ = instrument_net(net)
    assert [lever.tensor for lever in instrumentation.gates[0].levers] == ["layer00.transform_gate.bias"]
    assert [node.op_type for node in model.graph].count("Add") == 1


def test_the_bias_of_a_convolution_stays_a_constant() -> None:
    """onnxruntime chooses the layout of convolutions by their weights, so zeros are added after them."""
    spec = InputSpec("x", "float32", ("batch", 3, 6, 6))
    model = trace(Source("net", "module", (spec,), module=convolution.Conv2dHighway(3).eval())).model
    (gate,) = instrument(model).gates
    assert [lever.tensor for lever in gate.levers] == ["layer00.transform_gate.bias"]
    assert gate.bias is not None


def test_a_lever_does_not_change_other_users_of_the_logit() -> None:
    """H is computed from the same logit."""
    net = edge_cases.SharedLogit()
    model, instrumentation, runtime = instrument_net(net)
    x = torch.randn(3, 4)
    feeds = {"x": x.numpy()} | override_biases(biases(model, instrumentation), opened=instrumentation.gates)
    (y,) = runtime.run(feeds, [runtime.outputs[0].name])
    np.testing.assert_allclose(y, torch.tanh(net.both(x)).detach(), atol=1e-6)


def test_a_gate_that_is_public_and_used_twice_has_three_names() -> None:
    """Both gated sums name the gate, the public output keeps its name, and weights keep theirs."""
    net = edge_cases.Public()
    _, instrumentation, runtime = instrument_net(net)
    public = runtime.outputs[1].name
    names = [gate.name for gate in instrumentation.gates]
    assert len({public, *names}) == 3
    assert names[0] == "highway_layer00.time0.transform_gate"
    x = torch.randn(3, 4)
    values = runtime.run({"x": x.numpy()}, [public, *names])
    expected = torch.sigmoid(net.layer00(x)).detach()
    for value in values:
        np.testing.assert_allclose(value, expected, atol=1e-6)


def test_a_cell_with_three_gates_has_two_transform_gates() -> None:
    """The gate of the new content is T, another gate is the carry, and the third is a second T."""
    net = recurrent.HighwayLstm(4)
    _, instrumentation, runtime = instrument_net(net, "x", "below", "h", "c")
    assert [gate.kind for gate in instrumentation.gates] == ["independent", "independent"]
    assert len({gate.carry_gate for gate in instrumentation.gates}) == 1
    feeds = {
        name: np.random.default_rng(7).normal(size=(3, 4)).astype(np.float32)
        for name in ("x", "below", "h", "c")
    }
    x_and_h = torch.cat([torch.tensor(feeds["x"]), torch.tensor(feeds["h"])], 1)
    i = torch.sigmoid(net.i(x_and_h)).detach()
    values = runtime.run(feeds, [gate.name for gate in instrumentation.gates])
    assert any(np.allclose(value, i, atol=1e-6) for value in values)
