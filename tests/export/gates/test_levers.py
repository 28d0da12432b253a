"""Levers move their own gate and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from tests.highways import convolution, dense, edge_cases
from tests.support.gate_graphs import instrument_net, open_graph, shifted_biases
from turnpike.export.gates.instrument import Instrumentation
from turnpike.service.artifact.levers import override_biases


def biases(model: ir.Model, instrumentation: Instrumentation) -> dict[str, np.ndarray]:
    names = {lever.tensor for gate in instrumentation.gates for lever in gate.levers}
    return {name: model.graph.initializers[name].const_value.numpy() for name in names}


def test_a_shared_bias_is_not_used_as_a_lever() -> None:
    """Its gates get levers of their own, which move nothing else."""
    net = edge_cases.SharedBias()
    model, instrumentation = instrument_net(net, (4,))
    runtime = open_graph(model)
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
    _, instrumentation = instrument_net(net, (4,))
    (gate,) = instrumentation.gates
    assert gate.bias is not None
    assert gate.bias.mean == pytest.approx(net.gate.bias.mean().item())
    assert [lever.tensor for lever in gate.levers] == ["gate.bias"]


def test_a_gemm_without_a_bias_gets_a_lever() -> None:
    """The new bias is zero and has the name of the gate."""
    net = nn.Sequential(dense.Layer(4, bias=False))
    model, instrumentation = instrument_net(net, (4,))
    assert [lever.tensor for lever in instrumentation.gates[0].levers] == ["layer00.transform_gate.bias"]
    assert [node.op_type for node in model.graph].count("Add") == 1


def test_the_bias_of_a_convolution_stays_a_constant() -> None:
    """onnxruntime chooses the layout of convolutions by their weights, so zeros are added after them."""
    _, instrumentation = instrument_net(convolution.Conv2dHighway(3), (3, 6, 6))
    (gate,) = instrumentation.gates
    assert [lever.tensor for lever in gate.levers] == ["layer00.transform_gate.bias"]
    assert gate.bias is not None


def test_a_lever_does_not_change_other_users_of_the_logit() -> None:
    """H is computed from the same logit."""
    net = edge_cases.SharedLogit()
    model, instrumentation = instrument_net(net, (4,))
    runtime = open_graph(model)
    x = torch.randn(3, 4)
    feeds = {"x": x.numpy()} | override_biases(biases(model, instrumentation), opened=instrumentation.gates)
    (y,) = runtime.run(feeds, [runtime.outputs[0].name])
    np.testing.assert_allclose(y, torch.tanh(net.both(x)).detach(), atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
@pytest.mark.parametrize(
    "make",
    [lambda: dense.GateTwice(4, bias=False), edge_cases.SharedGate],
    ids=["computed twice", "in two sums"],
)
def test_a_lever_moves_every_use_of_a_gate(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """The gate is computed twice, or is used in two sums, and has no bias yet. Closed, it passes x on."""
    model, instrumentation = instrument_net(make(), shape)
    runtime = open_graph(model)
    x = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    (lever,) = {lever for gate in instrumentation.gates for lever in gate.levers}
    bias = model.graph.initializers[lever.tensor].const_value.numpy() - np.float32(1e4)
    (y,) = runtime.run({"x": x, lever.tensor: bias}, [runtime.outputs[0].name])
    np.testing.assert_array_equal(y, x)


def test_a_lever_shifts_what_the_sigmoid_is_applied_to() -> None:
    """(1 + tanh(z)) / 2 is sigmoid(2 z): the new bias moves 2 z by as much as is asked, not z."""
    net = edge_cases.TanhGate()
    model, instrumentation = instrument_net(net, (4,))
    (gate,) = instrumentation.gates
    x = torch.randn(3, 4)
    feeds = {"x": x.numpy(), **shifted_biases(model, instrumentation.gates, 0.5)}
    expected = torch.sigmoid(2 * net.gate(x) + 0.5).detach()
    np.testing.assert_allclose(open_graph(model).run(feeds, [gate.name])[0], expected, atol=1e-6)
