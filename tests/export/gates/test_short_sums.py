"""T H + (1 - T) x becomes x + T (H - x): where that saves an operator and keeps infinities in place."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from tests.highways.dense import Cbhg, GateTwice, Layer
from tests.support.gate_graphs import instrument_net, open_graph, shifted_biases
from turnpike.export.gates.instrument import Instrumentation
from turnpike.export.gates.short_sums import shorten_sums

SIZE, ROWS = 8, 3


def short_graph(net: nn.Module) -> tuple[ir.Model, ir.Model, Instrumentation]:
    """The instrumented graph of a network as it is, a copy with short sums, and its gates."""
    model, instrumentation = instrument_net(net, (SIZE,))
    short = model.clone()
    shorten_sums(short, instrumentation.gates)
    return model, short, instrumentation


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


@pytest.fixture
def x() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((ROWS, SIZE)).astype(np.float32)}


@pytest.mark.parametrize("layer", [Layer, Cbhg, GateTwice])
def test_each_layer_has_one_operator_less(layer: type[nn.Module], x: dict[str, np.ndarray]) -> None:
    """All outputs and their names stay, in their order."""
    torch.manual_seed(0)
    model, short, gates = short_graph(nn.Sequential(nn.Linear(SIZE, SIZE), layer(SIZE), layer(SIZE)))
    assert operators(model) - operators(short) == {"Mul": 2}
    runtime, short_runtime = open_graph(model), open_graph(short)
    assert short_runtime.outputs == runtime.outputs
    assert short_runtime.levers == runtime.levers
    names = [tensor.name for tensor in runtime.outputs]
    assert {gate.name for gate in gates.gates} | {gate.output for gate in gates.gates} <= set(names)
    for value, expected in zip(short_runtime.run(x, names), runtime.run(x, names), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


def test_the_sum_is_computed_as_written_here(x: dict[str, np.ndarray]) -> None:
    net = nn.Sequential(nn.Linear(SIZE, SIZE), Layer(SIZE)).eval()
    _, short, gates = short_graph(net)
    (gate,) = gates.gates
    t, y = open_graph(short).run(x, [gate.name, str(gate.output)])
    with torch.no_grad():
        carried = net[0](torch.from_numpy(x["x"]))
        transformed = torch.relu(net[1].normal_layer(carried)).numpy()
    np.testing.assert_allclose(y, carried.numpy() + t * (transformed - carried.numpy()), atol=1e-6)


def test_parts_of_a_sum_may_have_fewer_units(x: dict[str, np.ndarray]) -> None:
    """One H and one x for all units: H - x is smaller than T H."""

    class OneUnit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.entry, self.transform, self.gate = nn.Linear(SIZE, 1), nn.Linear(1, 1), nn.Linear(1, SIZE)

        def forward(self, x: Tensor) -> Tensor:
            x = self.entry(x)
            gate = torch.sigmoid(self.gate(x))
            return gate * torch.tanh(self.transform(x)) + (1 - gate) * x

    model, short, gates = short_graph(OneUnit())
    assert operators(model) - operators(short) == {"Mul": 1}
    (value,), (expected,) = (
        open_graph(graph).run(x, [str(gates.gates[0].output)]) for graph in (short, model)
    )
    np.testing.assert_allclose(value, expected, atol=1e-6)


def test_a_closed_gate_carries_every_bit(x: dict[str, np.ndarray]) -> None:
    _, short, gates = short_graph(nn.Sequential(nn.Linear(SIZE, SIZE), Layer(SIZE), Layer(SIZE)))
    runtime = open_graph(short)
    outputs = [str(gate.output) for gate in gates.gates]
    closed = runtime.run(x | shifted_biases(short, gates.gates, -1e4), outputs)
    np.testing.assert_array_equal(*closed)
    opened = runtime.run(x | shifted_biases(short, gates.gates, 1e4), outputs)
    assert (opened[1] != opened[0]).any()


class FirstState(nn.Module):
    """A recurrent layer whose first state has as many rows as the input, and is constant otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(2 * SIZE, SIZE), nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_full(x.shape, 0.5)
        for _ in range(3):
            both = torch.cat([x, state], 1)
            gate = torch.sigmoid(self.gate(both))
            state = gate * torch.tanh(self.transform(both)) + (1 - gate) * state
        return state


def test_the_states_of_a_recurrent_layer_are_not_its_input() -> None:
    model, short, gates = short_graph(FirstState())
    assert operators(model) - operators(short) == {"Mul": len(gates.gates)}


class CarryOutput(nn.Module):
    """Returns the carry gate as well."""

    def __init__(self) -> None:
        super().__init__()
        self.entry, self.transform, self.gate = (nn.Linear(SIZE, SIZE) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.entry(x)
        gate = torch.sigmoid(self.gate(x))
        carry = 1 - gate
        return gate * torch.tanh(self.transform(x)) + carry * x, carry


class CarryUsedTwice(CarryOutput):
    """Computes something else from the carry gate."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, carry = super().forward(x)
        return y, carry.mean()


class ProductOutput(CarryOutput):
    """Returns T H as well."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.entry(x)
        gate = torch.sigmoid(self.gate(x))
        product = gate * torch.tanh(self.transform(x))
        return product + (1 - gate) * x, product


@pytest.mark.parametrize("net", [CarryOutput, CarryUsedTwice, ProductOutput])
def test_a_sum_whose_parts_are_needed_stays(net: type[nn.Module]) -> None:
    model, short, gates = short_graph(net())
    assert len(gates.gates) == 1
    assert operators(short) == operators(model)


@pytest.mark.parametrize(
    "join",
    [lambda t, h, x: x + t * (h - x), lambda t, h, x: t * x + (1 - t) * h],
    ids=["short already", "the gate is the carry gate, so 1 - gate is T"],
)
def test_a_sum_that_would_save_nothing_stays(join: object) -> None:
    layer = Layer(SIZE, join)  # type: ignore[arg-type]
    model, short, gates = short_graph(nn.Sequential(nn.Linear(SIZE, SIZE), layer))
    assert len(gates.gates) == 1
    assert operators(short) == operators(model)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_carried_infinity_stays_infinite(scaled: bool) -> None:
    """Layers that carry the network's input, or a multiple of it, stay as they are."""

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - 0.5) * 2

    layers = [Layer(SIZE), Layer(SIZE)]
    # an infinity closes all gates
    for linear in (linear for layer in layers for linear in (layer.gate, layer.normal_layer)):
        nn.init.constant_(linear.weight, -1.0)
    model, short, gates = short_graph(nn.Sequential(Scaled() if scaled else nn.Identity(), *layers))
    assert operators(short) == operators(model)
    rows = np.zeros((ROWS, SIZE), np.float32)
    rows[1, 0] = np.inf
    (output,) = open_graph(short).run({"x": rows}, [str(gates.gates[1].output)])
    np.testing.assert_array_equal(np.isposinf(output), rows == np.inf)
    assert not np.isnan(output).any()
