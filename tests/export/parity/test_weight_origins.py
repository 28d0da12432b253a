"""Every weight of a graph equals the network's bit for bit, or is computed from the network's weights."""

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
from turnpike.export.parity.weight_origins import (
    MAX_LITERAL_SIZE,
    WeightMatch,
    check_weights,
    rounding_distance,
)
from turnpike.export.trace.trace_network import TracedGraph, trace

W = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 7
V = -np.arange(1, 9, dtype=np.float32).reshape(2, 4) / 3
BN = np.float32([0.5, 0.25, 0.125, 1, 2, 3, 4, 5, 6, 7])


def graph(*nodes: onnx.NodeProto, **weights: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [], tensors))


def check(model: onnx.ModelProto) -> WeightMatch:
    """Check a graph against a source with the weights W, V and BN."""
    network = Network("s", "onnx", parse_inputs(["x:float32[batch,4]"]), graph=graph(w=W, v=V, bn=BN))
    return check_weights(network, None, ir.from_proto(model))


@pytest.mark.parametrize(
    "array",
    [
        W,
        np.ascontiguousarray(W.T),
        W.reshape(2, 6),
        W.reshape(1, 3, 4),
        W.reshape(1, 3, 4).transpose(2, 0, 1).copy(),
        np.concatenate([W, V]),
        np.concatenate([V, W, V]),
        np.concatenate([W.T, V.T], axis=1),
        np.concatenate([W.T, V.T], axis=1).copy(order="F"),
        W.reshape(1, 3, 2, 2).transpose(3, 1, 0, 2).copy(),
    ],
)
def test_transformed_weights_are_recognized(array: np.ndarray) -> None:
    """The weight may be renamed, transposed, reshaped or concatenated."""
    assert check(graph(other=np.ascontiguousarray(array))) == WeightMatch(1, 0, 0.0)


def change_last_bit(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.reshape(-1)[-1] = np.nextafter(array.reshape(-1)[-1], np.float32(9))
    return array


@pytest.mark.parametrize(
    "array",
    [
        W.T,
        W.reshape(2, 6),
        np.concatenate([W, V]),
        np.concatenate([W, V])[:-1],
        W.astype(np.float64),
        W[:, :3],
    ],
)
def test_other_weights_are_named(array: np.ndarray) -> None:
    """One changed bit makes another weight. A part of a weight and another dtype are other weights too."""
    with pytest.raises(
        ParityError, match=r"^other: expected one of .*, got another constant float\d\d\[.*\]$"
    ):
        check(graph(other=change_last_bit(array)))


def test_the_networks_own_weights_are_listed() -> None:
    """For a file of another network, or of one without its weight_norm."""
    net = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)).eval()
    traced = trace(Network("net", "module", parse_inputs(["x:float32[batch,4]"]), module=net))
    with pytest.raises(ParityError, match=r"; the network has bias, \S+original0, \S+original1$"):
        rounding_distance("weight", V, traced)


def test_a_single_number_is_not_where_a_tensor_comes_from() -> None:
    """Else every tensor of equal numbers could come from it."""
    network = Network("s", "onnx", (), graph=graph(half=np.float32([0.5])))
    with pytest.raises(ParityError, match="^other: expected one of the network's weights"):
        check_weights(network, None, ir.from_proto(graph(other=np.full(12, 0.5, np.float32))))


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
    assert check_weights(network, None, ir.from_proto(graph(w=nan))).identical == 1
    with pytest.raises(ParityError, match="^z: "):
        check_weights(network, None, ir.from_proto(graph(z=-np.zeros((2, 5), np.float32))))


def test_literals_indices_and_zeros_are_not_checked() -> None:
    """Literals, shapes and zero biases come from no parameter. The outputs show their effect."""
    shape = np.arange(100)
    literal = np.linspace(1, 2, MAX_LITERAL_SIZE, dtype=np.float32)
    match = check(graph(one=np.float32(1), shape=shape, literal=literal, zeros=np.zeros(50, np.float32)))
    assert match == WeightMatch(0, 0, 0.0)
    with pytest.raises(ParityError, match="^more: "):
        check(graph(more=np.linspace(1, 2, MAX_LITERAL_SIZE + 1, dtype=np.float32)))


def test_weights_inside_nodes_and_branches_are_checked() -> None:
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(change_last_bit(W), "c"))
    with pytest.raises(ParityError, match="^c: "):
        check(graph(constant))
    y = helper.make_tensor_value_info("deep", TensorProto.FLOAT, [3, 4])
    inner = helper.make_graph(
        [helper.make_node("Identity", ["hidden"], ["deep"])],
        "b",
        [],
        [y],
        [numpy_helper.from_array(change_last_bit(W), "hidden")],
    )
    branch = helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner)
    with pytest.raises(ParityError, match="^hidden: "):
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


def test_weights_may_be_parameters_buffers_or_attributes(traced_network: tuple[Network, TracedGraph]) -> None:
    """Parameters, buffers saved or not, and plain attributes; a folded constant is recomputed."""
    network, traced = traced_network
    match = check_weights(network, traced, traced.model)
    assert (match.identical, match.derived) == (5, 1)
    assert 0 <= match.ulp <= 2


def test_each_kind_of_weight_is_checked(traced_network: tuple[Network, TracedGraph]) -> None:
    """A changed bit in any of them is found; in a folded constant, more than two units in the last place."""
    network, traced = traced_network
    constants = {name: value.const_value for name, value in traced.model.graph.initializers.items()}
    weights = [
        name for name, value in constants.items() if value is not None and value.size > MAX_LITERAL_SIZE
    ]
    assert len(weights) == 6
    for name in weights:
        with pytest.raises(ParityError, match=f"^{name}: expected"):
            check_weights(
                network, traced, with_weight(traced, name, lambda w: w + np.float32(3e-7) * np.sign(w))
            )


@pytest.mark.parametrize(("units", "passes"), [(2, True), (3, False)])
def test_a_recomputed_constant_may_be_off_by_two_units(
    traced_network: tuple[Network, TracedGraph], units: int, passes: bool
) -> None:
    """The first element is 0 exactly, so that it can be off by whole units of the largest."""
    network, traced = traced_network
    ((name, constant),) = {
        name: value.const_value.numpy()
        for name, value in traced.model.graph.initializers.items()
        if value.const_value is not None and "sin" in name
    }.items()
    assert constant[0] == 0
    changed = with_weight(traced, name, lambda w: np.float32([units * np.spacing(np.abs(w).max()), *w[1:]]))
    if passes:
        assert check_weights(network, traced, changed).ulp == units
    else:
        with pytest.raises(ParityError, match=f"within 2 units in the last place .* off by {units}$"):
            check_weights(network, traced, changed)


def test_a_tensor_with_two_names_is_checked_under_both() -> None:
    """Parameters and buffers may be shared by parts of a module."""
    net = nn.Module()
    net.first, net.second = nn.Module(), nn.Module()
    for part in (net.first, net.second):
        part.weight = nn.Parameter(torch.ones(2)) if part is net.first else net.first.weight
        part.register_buffer("saved", torch.ones(2) if part is net.first else net.first.saved)
    network = Network("s", "module", (), module=net)
    for name in ("first.weight", "second.weight", "first.saved", "second.saved"):
        check_weights(network, None, ir.from_proto(graph(**{name: np.ones(2, np.float32)})))
        with pytest.raises(ParityError, match=f"^{name}: expected the network's weights bit for bit"):
            check_weights(network, None, ir.from_proto(graph(**{name: np.zeros(2, np.float32)})))


def test_weights_are_those_of_the_module(traced_network: tuple[Network, TracedGraph]) -> None:
    """If the module's weights changed after tracing, those of the graph are outdated."""
    network, traced = traced_network
    torch.manual_seed(1)
    other = ManyTensors().eval()
    with pytest.raises(ParityError, match="expected the network's weights bit for bit"):
        check_weights(Network("s", "m", network.inputs, module=other), traced, traced.model)
