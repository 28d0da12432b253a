"""Gates found in the graph, whoever wrote the code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from highways import carries, convolution, dense, fused, recurrent
from highways.example import Example
from highways.impostors import IMPOSTORS
from torch import nn

from export.gates import Gates, offer
from export.signature import Input
from export.source import Source
from export.trace import trace
from service.manifest import Gate
from service.runtime import Runtime, open_model

Array = np.ndarray[Any, np.dtype[Any]]

EXAMPLES = [
    *dense.EXAMPLES,
    *fused.EXAMPLES,
    *carries.EXAMPLES,
    *convolution.EXAMPLES,
    *recurrent.EXAMPLES,
]
ROWS = 3


def graph_of(net: nn.Module, shape: tuple[int, ...]) -> ir.Model:
    x = Input("x", "float32", ("batch", *shape))
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


def offered(net: nn.Module, shape: tuple[int, ...]) -> tuple[ir.Model, Gates]:
    model = graph_of(net, shape)
    return model, offer(model)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_gates_are_found_named_and_moved(example: Example) -> None:
    """Of each way to write a highway T is what the network itself computes, not g, and its levers move it."""
    net = example.make().eval()
    model = graph_of(net, example.shape)
    found = offer(model)
    x = torch.randn(ROWS, *example.shape)
    seen, answer = example.observe(net, x)
    assert len(found.gates) == len(seen)
    assert not found.warnings
    forms = example.forms if len(example.forms) > 1 else example.forms * len(seen)
    assert [(gate.kind, gate.carry) for gate in found.gates] == list(forms)
    runtime = opened(model)
    feeds = {"x": x.numpy()}
    public = [tensor.name for tensor in runtime.outputs if tensor.name not in found.origins]
    np.testing.assert_allclose(runtime.run(feeds, public)[0], answer, atol=1e-5)
    names = [gate.name for gate in found.gates]
    for gate, transform, expected in zip(found.gates, runtime.run(feeds, names), seen, strict=True):
        np.testing.assert_allclose(transform, expected, atol=1e-5)
        assert (gate.unit_axis, gate.units) == (example.unit_axis, expected.shape[example.unit_axis])
        if example.bias is not None:
            assert gate.bias is not None
            assert gate.bias.mean == pytest.approx(example.bias)
    assert all(bool(gate.levers) == example.levers for gate in found.gates)
    for shift, end in ((-1e4, 0.0), (1e4, 1.0)):
        moved = feeds | overrides(model, found.gates, shift)
        for gate in found.gates:
            assert (runtime.run(moved, [gate.name])[0] == end).all()
            if gate.carry_gate is not None:
                assert (runtime.run(moved, [gate.carry_gate])[0] == 1 - end).all()


@pytest.mark.parametrize("name", IMPOSTORS)
def test_what_is_no_highway_has_no_gates(name: str) -> None:
    """Sigmoids that gate nothing against its own input are left alone, and the graph as it was."""
    make, shape = IMPOSTORS[name]
    model = graph_of(make(), shape)
    before = ir.to_proto(model).SerializeToString()
    assert offer(model) == Gates((), {}, ())
    assert ir.to_proto(model).SerializeToString() == before
