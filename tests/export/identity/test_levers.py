"""The decision about levers and closed layers: highways of many forms, and planted faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from tests.highways import carries, convolution, dense, edge_cases, recurrent
from tests.highways.example import Example
from tests.highways.faults import wrong_carry
from tests.support.gate_graphs import instrument_net
from turnpike.export.gates.instrument import Instrumentation
from turnpike.export.identity.decision import InputShape, LeverDecision, Verdict
from turnpike.export.identity.gate_algebra import GateAlgebra
from turnpike.export.identity.levers import RecordedRun, decide_levers, record_run
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.samples import draw_inputs
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source

UNITS, ROWS = 6, 3
Graph = tuple[ir.Model, Instrumentation]


class Highways(nn.Module):
    """Three layers with equal biases."""

    def __init__(self) -> None:
        super().__init__()
        layers = [dense.Layer(UNITS) for _ in range(3)]
        self.layers = nn.ModuleList(layers)
        with torch.no_grad():
            for layer in layers:
                layer.gate.bias.fill_(-1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def decided(graph: Graph, shape: tuple[int, ...], trusted: ir.Model | None = None) -> LeverDecision:
    model, instrumentation = graph
    return decide_levers(model, instrumentation.gates, recorded(model, (ROWS, *shape)), trusted)


def recorded(model: ir.Model, shape: tuple[int, ...]) -> RecordedRun:
    numbers = Residues()
    (inputs,) = draw_inputs(numbers, [[InputShape(np.dtype(np.float32), shape)]])
    with np.errstate(over="ignore"):
        return record_run(model, GateAlgebra(numbers, normalizes=False), inputs)


@pytest.fixture(scope="module")
def highways() -> Graph:
    torch.manual_seed(0)
    return instrument_net(Highways(), (UNITS,))


def changed(graph: Graph, change: Callable[[ir.Model], None]) -> LeverDecision:
    model, instrumentation = graph
    copy = model.clone()
    change(copy)
    return decided((copy, instrumentation), (UNITS,), model)


# ---- honest graphs

EXAMPLES = [
    example
    for examples in (carries.ROWS, carries.EXAMPLES, convolution.EXAMPLES, recurrent.EXAMPLES)
    for example in examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_levers_of_all_forms_are_decided(example: Example) -> None:
    """Coupled, independent and softmax gates, dense, of maps and recurrent."""
    graph = instrument_net(example.make(), example.shape)
    decision = decided(graph, example.shape)
    gates = graph[1].gates
    assert decision.verdict is Verdict.IDENTICAL, decision
    assert decision.moved == tuple(gate.name for gate in gates if gate.levers)
    assert set(decision.carried) == {gate.name for gate in gates if gate.carry == "identity"}
    assert decision.error_bound < 1e-18


@pytest.mark.parametrize(
    "make",
    [
        edge_cases.SharedBias,
        edge_cases.Stream,
        edge_cases.TanhGate,
        edge_cases.SharedLogit,
        edge_cases.SharedGate,
        edge_cases.Public,
    ],
    ids=lambda make: make.__name__,
)
def test_levers_of_edge_cases_are_decided(make: Callable[[], nn.Module]) -> None:
    decision = decided(instrument_net(make(), (4,)), (4,))
    assert decision.verdict is Verdict.IDENTICAL, decision


# ---- faults that change nothing while the levers have their defaults


def gate(model: ir.Model, layer: int) -> ir.Node:
    """The Sigmoid of a layer."""
    return [node for node in model.graph if node.op_type == "Sigmoid"][layer]


def gemm(model: ir.Model, layer: int) -> ir.Node:
    node = gate(model, layer).inputs[0]
    assert node is not None
    producer = node.producer()
    assert producer is not None
    assert producer.op_type == "Gemm"
    return producer


def copied_bias(model: ir.Model, layer: int) -> ir.Value:
    bias = gemm(model, layer).inputs[2]
    assert bias is not None
    assert bias.const_value is not None
    name = f"{bias.name}.copy"
    value = ir.Value(name=name, const_value=ir.tensor(bias.const_value.numpy().copy(), name=name))
    model.graph.register_initializer(value)
    return value


def use_copy(model: ir.Model) -> None:
    """The Gemm reads a copy of its bias."""
    gemm(model, 1).replace_input_with(2, copied_bias(model, 1))


def use_bias_of_next_layer(model: ir.Model) -> None:
    gemm(model, 1).replace_input_with(2, gemm(model, 2).inputs[2])


def combine(model: ir.Model, layer: int, operator: str, inputs: list[ir.Value], **attributes: int) -> None:
    """Compute the bias of a layer from its lever and its copy."""
    node = ir.node(operator, inputs, attributes)
    model.graph.insert_before(gemm(model, layer), node)
    gemm(model, layer).replace_input_with(2, node.outputs[0])


def sliced(model: ir.Model, value: ir.Value, start: int, stop: int) -> ir.Value:
    bounds = []
    for number in (start, stop):
        name = f"{value.name}.{start}.{stop}.{number}"
        bounds.append(ir.Value(name=name, const_value=ir.tensor(np.array([number]), name=name)))
        model.graph.register_initializer(bounds[-1])
    node = ir.node("Slice", [value, *bounds])
    model.graph.insert_before(next(iter(model.graph)), node)
    return node.outputs[0]


def half_connected(model: ir.Model) -> None:
    """Half of the units read the lever, and the others a copy."""
    bias, copy = gemm(model, 1).inputs[2], copied_bias(model, 1)
    assert bias is not None
    halves = [sliced(model, bias, 0, UNITS // 2), sliced(model, copy, UNITS // 2, UNITS)]
    combine(model, 1, "Concat", halves, axis=0)


def moves_twice_as_far(model: ir.Model) -> None:
    """2 b - copy."""
    bias, copy = gemm(model, 1).inputs[2], copied_bias(model, 1)
    assert bias is not None
    node = ir.node("Sub", [bias, copy])
    model.graph.insert_before(gemm(model, 1), node)
    combine(model, 1, "Add", [bias, node.outputs[0]])


def twin(model: ir.Model, layer: int) -> ir.Value:
    """A second gate of a layer, which reads a copy of the bias."""
    source = gemm(model, layer)
    linear = ir.node("Gemm", [*source.inputs[:2], copied_bias(model, layer)], dict(source.attributes))
    sigmoid = ir.node("Sigmoid", [linear.outputs[0]])
    model.graph.insert_after(gate(model, layer), [linear, sigmoid])
    return sigmoid.outputs[0]


def carry_of_a_twin(model: ir.Model) -> None:
    """C is 1 minus a gate that the lever does not move."""
    dead = twin(model, 1)
    gated = gate(model, 1).outputs[0]
    sub = next(user for user, _ in gated.uses() if user.op_type == "Sub")
    sub.replace_input_with(1, dead)


def layer_of_a_twin(model: ir.Model) -> None:
    """Only the hidden output of T moves."""
    dead = twin(model, 1)
    gated = gate(model, 1).outputs[0]
    for user, index in tuple(gated.uses()):
        user.replace_input_with(index, dead)


def moves_the_answer(model: ir.Model) -> None:
    """Lever minus copy is added to the output of the layer after."""
    bias, copy = gemm(model, 1).inputs[2], copied_bias(model, 1)
    assert bias is not None
    difference = ir.node("Sub", [bias, copy])
    source = gemm(model, 2).inputs[0]
    assert source is not None
    total = ir.node("Add", [source, difference.outputs[0]])
    model.graph.insert_before(gemm(model, 2), [difference, total])
    gemm(model, 2).replace_input_with(0, total.outputs[0])


DEAD = [use_copy, use_bias_of_next_layer, half_connected, moves_twice_as_far]


@pytest.mark.parametrize("fault", DEAD, ids=lambda fault: fault.__name__)
def test_a_faulty_lever_is_named(highways: Graph, fault: Callable[[ir.Model], None]) -> None:
    decision = changed(highways, fault)
    assert decision.verdict is Verdict.DIFFERENT, decision
    assert decision.different == ("layer01.transform_gate",)
    assert decision.reason is not None
    assert decision.reason.startswith("layer01.transform_gate: its lever ")


@pytest.mark.parametrize(
    "fault", [carry_of_a_twin, layer_of_a_twin, moves_the_answer], ids=lambda f: f.__name__
)
def test_a_lever_that_moves_too_little_or_too_much_is_different(
    highways: Graph, fault: Callable[[ir.Model], None]
) -> None:
    assert changed(highways, fault).verdict is Verdict.DIFFERENT


def test_a_half_connected_lever_is_described(highways: Graph) -> None:
    assert "moves only 50% of it" in str(changed(highways, half_connected))


def test_a_layer_that_does_not_carry_is_different(highways: Graph) -> None:
    """C = 0.9999 - T."""
    decision = changed(highways, wrong_carry)
    assert decision.verdict is Verdict.DIFFERENT
    assert decision.different == ("layer02.transform_gate",)


def carry_twice(model: ir.Model) -> None:
    """C x is C (x + x)."""
    sub = next(user for user, _ in gate(model, 1).outputs[0].uses() if user.op_type == "Sub")
    product = next(user for user, _ in sub.outputs[0].uses())
    (index,) = [number for number, value in enumerate(product.inputs) if value is not sub.outputs[0]]
    source = product.inputs[index]
    assert source is not None
    total = ir.node("Add", [source, source])
    model.graph.insert_before(product, total)
    product.replace_input_with(index, total.outputs[0])


def test_a_layer_that_carries_a_value_that_its_gate_does_not_read_is_not_decided(highways: Graph) -> None:
    """As the memory of an LSTM's cell. Whether it is the network's own value is decided with the outputs."""
    decision = changed(highways, carry_twice)
    assert decision.different == ()
    assert "layer01.transform_gate" not in decision.carried
    assert any("a value that the gate does not read" in reason for reason in decision.undecided)


def test_a_lever_must_be_an_input(highways: Graph) -> None:
    def not_overridable(model: ir.Model) -> None:
        model.graph.inputs.remove(gemm(model, 1).inputs[2])  # type: ignore[arg-type]

    decision = changed(highways, not_overridable)
    assert decision.verdict is Verdict.DIFFERENT
    assert decision.different == ("layer01.transform_gate",)


# ---- what is not decided


class HardGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = nn.functional.hardsigmoid(self.gate(x))
        return gate * torch.relu(self.inner(x)) + (1 - gate) * x


def test_a_gate_of_another_function_is_not_decided_unless_its_lever_differs() -> None:
    """The lever has to do what it does in the graph that was exported here. The layer is decided."""
    model, instrumentation = instrument_net(HardGate(), (UNITS,))
    decision = decided((model, instrumentation), (UNITS,), model)
    assert decision.verdict is Verdict.NOT_DECIDED
    assert "a lever of a gate that is neither a sigmoid nor a softmax" in str(decision)
    assert decision.carried == tuple(gate.name for gate in instrumentation.gates)
    copy = model.clone()
    linear = next(node for node in copy.graph if node.op_type == "Gemm" and "gate" in str(node.inputs[2]))
    bias = linear.inputs[2]
    assert bias is not None
    assert bias.const_value is not None
    dead = ir.Value(name="dead", const_value=ir.tensor(bias.const_value.numpy().copy(), name="dead"))
    copy.graph.register_initializer(dead)
    linear.replace_input_with(2, dead)
    assert decided((copy, instrumentation), (UNITS,), model).verdict is Verdict.DIFFERENT


def test_a_layer_of_a_clipped_gate_that_does_not_carry_is_not_called_so() -> None:
    """The square of its gate is added to it."""
    model, instrumentation = instrument_net(HardGate(), (UNITS,))
    (gate,) = instrumentation.gates
    output = next(value for value in model.graph.outputs if value.name == gate.output)
    node = output.producer()
    assert node is not None
    hidden = next(value for value in model.graph.outputs if value.name == gate.name)
    first = node.inputs[0]
    assert first is not None
    square = ir.node("Mul", [hidden, hidden])
    more = ir.node("Add", [first, square.outputs[0]])
    model.graph.insert_before(node, [square, more])
    node.replace_input_with(0, more.outputs[0])
    decision = decided((model, instrumentation), (UNITS,), model)
    assert decision.carried == ()
    assert "so its layer was not closed" in str(decision)


def test_layers_inside_a_loop_are_not_closed() -> None:
    """Their levers are decided."""
    network = load_source(
        nn.Sequential(nn.GRU(4, 5, batch_first=True)), SourceOptions(inputs=["x:float32[batch,time,4]"])
    )
    graph = prepare(network, open_recurrent=True)
    decision = decide_levers(graph.model, graph.gates.gates, recorded(graph.model, (ROWS, 4, 4)))
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert "inside a loop" in str(decision)
    assert decision.moved == tuple(gate.name for gate in graph.gates.gates if gate.levers)
    assert decision.moved
