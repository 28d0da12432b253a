"""Networks that store or compute in bfloat16 have graphs in float32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import TracedGraph, trace
from turnpike.service.artifact.runtime import open_model

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Stored(nn.Module):
    """Parameters in bfloat16, which are used in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight.float(), self.layer.bias.float())


class Converted(nn.Module):
    """A part of the network computes in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return (0.1 * self.layer(x.bfloat16())).float()


class Autocast(nn.Module):
    """PyTorch converts to bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = 0.1 * self.layer(x)
        return y.float()


def trace_network(net: nn.Module, *, as_program: bool = False) -> TracedGraph:
    inputs = parse_inputs(["x:float32[batch,4]"])
    if not as_program:
        return trace(Network("net", "module", inputs, module=net.eval()))
    shapes = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(net.eval(), (X,), dynamic_shapes=shapes, strict=False)
    return trace(Network("net", "program", inputs, program=program))


def outputs(traced: TracedGraph) -> np.ndarray:
    runtime = open_model(ir.to_proto(traced.model).SerializeToString())
    (output,) = runtime.run({"x": X.numpy()}, ["output"])
    return output


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize("make", [Converted, Autocast])
def test_a_part_in_bfloat16_is_computed_in_float32(make: type[nn.Module], as_program: bool) -> None:
    """Without its rounding; a sentence says so. The network stays as it is."""
    net = make()
    traced = trace_network(net, as_program=as_program)
    (warning,) = traced.warnings
    assert warning.startswith("test_bfloat16.py:"), warning
    assert warning.endswith("the network computes in bfloat16, and the file in float32")
    with torch.no_grad():
        wide = 0.1 * F.linear(X, net.layer.weight.float(), net.layer.bias.float())
        rounded = net(X)
    np.testing.assert_allclose(outputs(traced), wide, atol=1e-6)
    assert (rounded - wide).abs().max() > 1e-5, "expected a network that rounds"
    assert next(net.parameters()).dtype == (torch.bfloat16 if make is Converted else torch.float32)


@pytest.mark.parametrize("as_program", [False, True])
def test_parameters_in_bfloat16_keep_their_values(as_program: bool) -> None:
    net = Stored()
    traced = trace_network(net, as_program=as_program)
    assert traced.warnings == ()
    weights = traced.model.graph.initializers
    for name, parameter in net.named_parameters():
        assert weights[name].const_value is not None
        np.testing.assert_array_equal(weights[name].const_value.numpy(), parameter.detach().float())
    with torch.no_grad():
        np.testing.assert_allclose(outputs(traced), net(X), atol=1e-6)
