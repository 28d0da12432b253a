"""Each weight of a graph equals the network's of its name, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from turnpike.export.errors import ParityError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.weights import expect_same_weights
from turnpike.export.trace.trace_network import TracedGraph, trace

W = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 7
V = -np.arange(1, 9, dtype=np.float32).reshape(2, 4) / 3
BN = np.float32([0.5, 0.25, 0.125, 1, 2, 3, 4, 5, 6, 7])


def graph(*nodes: onnx.NodeProto, **weights: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [], tensors))


def check(model: onnx.ModelProto) -> None:
    """Check a graph against a source with the weights W, V and BN."""
    network = Network("s", "onnx", parse_inputs(["x:float32[batch,4]"]), graph=graph(w=W, v=V, bn=BN))
    expect_same_weights(network, None, ir.from_proto(model))


def change_last_bit(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.reshape(-1)[-1] = np.nextafter(array.reshape(-1)[-1], np.float32(9))
    return array


def test_a_weight_under_another_name_is_not_compared() -> None:
    check(graph(other=np.ascontiguousarray(W.T), w=W))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            change_last_bit(W),
            r"^w: expected the network's weights bit for bit, 1 of 12 differ, first at \[2, 3\]: expected ",
        ),
        (
            W.T.copy(),
            r"^w: expected the network's weights of float32\[3, 4\], the graph has float32\[4, 3\]$",
        ),
        (W.astype(np.float16), "the graph has float16"),
        (-np.abs(W) * 0, "bit for bit, 12 of 12 differ"),
    ],
)
def test_a_weight_is_compared_with_the_parameter_of_its_name(array: np.ndarray, message: str) -> None:
    """The weight of another layer and the transposed weight are refused."""
    with pytest.raises(ParityError, match=message):
        check(graph(w=array))


def test_weights_are_compared_by_bits() -> None:
    """NaN equals itself; minus zero differs from zero."""
    nan = np.full((2, 5), np.nan, np.float32)
    network = Network("s", "onnx", (), graph=graph(w=nan, z=np.zeros((2, 5), np.float32)))
    expect_same_weights(network, None, ir.from_proto(graph(w=nan)))
    with pytest.raises(ParityError, match="^z: "):
        expect_same_weights(network, None, ir.from_proto(graph(z=-np.zeros((2, 5), np.float32))))


def test_weights_inside_nodes_and_branches_are_checked() -> None:
    constant = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(change_last_bit(V), "v"))
    with pytest.raises(ParityError, match="^v: "):
        check(graph(constant))
    y = helper.make_tensor_value_info("deep", TensorProto.FLOAT, [3, 4])
    inner = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["deep"])],
        "b",
        [],
        [y],
        [numpy_helper.from_array(change_last_bit(W), "w")],
    )
    branch = helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
    with pytest.raises(ParityError, match="^w: "):
        check(graph(branch))


class ManyTensors(nn.Module):
    """Holds tensors in every way that a module can, and computes one from none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)
        self.register_buffer("saved", torch.randn(10))
        self.register_buffer("not_saved", torch.randn(10), persistent=False)
        self.plain = torch.randn(10)

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.sin(torch.arange(10) / 3)
        return self.linear(x) * self.saved + self.not_saved * self.plain + positions


@pytest.fixture(scope="module")
def traced_network() -> tuple[Network, TracedGraph]:
    torch.manual_seed(0)
    network = Network("s", "module", parse_inputs(["x:float32[batch,10]"]), module=ManyTensors().eval())
    return network, trace(network)


def with_weight(traced: TracedGraph, name: str, change: Callable[[np.ndarray], np.ndarray]) -> ir.Model:
    model = ir.from_proto(ir.to_proto(traced.model))
    value = model.graph.initializers[name]
    assert value.const_value is not None
    value.const_value = ir.Tensor(change(value.const_value.numpy()), name=name)
    return model


def test_each_kind_of_weight_is_checked(traced_network: tuple[Network, TracedGraph]) -> None:
    """Parameters, buffers saved or not, and plain attributes; not the sines, which are computed."""
    network, traced = traced_network
    expect_same_weights(network, traced, traced.model)
    weights = [
        name
        for name, value in traced.model.graph.initializers.items()
        if value.const_value is not None and value.const_value.size >= 10 and "sin" not in name
    ]
    assert len(weights) == 5
    for name in weights:
        with pytest.raises(ParityError, match=f"^{name}: expected"):
            expect_same_weights(network, traced, with_weight(traced, name, change_last_bit))


def test_a_tensor_with_two_names_is_checked_under_both() -> None:
    """Parameters and buffers may be shared by parts of a module."""
    net = nn.Module()
    net.first, net.second = nn.Module(), nn.Module()
    for part in (net.first, net.second):
        part.weight = nn.Parameter(torch.ones(2)) if part is net.first else net.first.weight
        part.register_buffer("saved", torch.ones(2) if part is net.first else net.first.saved)
    network = Network("s", "module", (), module=net)
    for name in ("first.weight", "second.weight", "first.saved", "second.saved"):
        expect_same_weights(network, None, ir.from_proto(graph(**{name: np.ones(2, np.float32)})))
        with pytest.raises(ParityError, match=f"^{name}: expected the network's weights bit for bit"):
            expect_same_weights(network, None, ir.from_proto(graph(**{name: np.zeros(2, np.float32)})))


def test_weights_are_those_of_the_module(traced_network: tuple[Network, TracedGraph]) -> None:
    """If the module's weights changed after tracing, those of the graph are outdated."""
    network, traced = traced_network
    torch.manual_seed(1)
    other = ManyTensors().eval()
    with pytest.raises(ParityError, match="expected the network's weights bit for bit"):
        expect_same_weights(Network("s", "m", network.inputs, module=other), traced, traced.model)
