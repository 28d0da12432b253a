"""The decision whether a graph and a program are the same function: honest graphs, and planted faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from tests.highways.faults import FAULTS
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, HiddenOutput, InputShape, Verdict
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.export.sources.load import load_source
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import find_preset

Array = np.ndarray  # type: ignore[type-arg]
SIZES = (1, 5, 4)


def prepared(net: nn.Module, spec: str) -> PreparedGraph:
    return prepare(load_source(net.eval(), SourceOptions(inputs=[spec], name="net")))


def decided(graph: PreparedGraph, model: ir.Model, shape: tuple[int, ...]) -> Decision:
    """The decision about a graph for the program that another one was exported from."""
    assert graph.traced is not None
    hidden = {
        name: HiddenOutput(origin.value, origin.row_axis, origin.scale, origin.offset)
        for name, origin in graph.gates.origins.items()
        if origin.value is not None
    }
    shapes = [[InputShape(np.dtype(np.float32), (rows, *shape))] for rows in SIZES]
    return decide(graph.traced.program, model, shapes, hidden)


@pytest.fixture(scope="module")
def digits() -> PreparedGraph:
    torch.manual_seed(7)
    return prepared(build_network(find_preset("digits-10").config), "x:float32[batch,1,8,8]")


class TwoSources(nn.Module):
    """A softmax over two sources: the parts of it are no values of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.score = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.score(x), -1).unsqueeze(-2)
        return (shares @ torch.stack([torch.relu(self.inner(x)), x], -2)).squeeze(-2)


def test_a_gate_that_the_network_does_not_compute_is_compared() -> None:
    """The graph that was exported here has it."""
    graph = prepared(TwoSources(), "x:float32[batch,4,6]")
    assert graph.traced is not None
    (gate,) = graph.gates.gates
    hidden = {
        name: HiddenOutput(origin.value, origin.row_axis, origin.scale, origin.offset)
        for name, origin in graph.gates.origins.items()
    }
    shapes = [[InputShape(np.dtype(np.float32), (2, 4, 6))]]
    other = graph.model.clone()
    output = next(value for value in other.graph.outputs if value.name == gate.name)
    node = output.producer()
    assert node is not None
    doubled = ir.node("Add", [output, output])
    other.graph.insert_after(node, doubled)
    output.name, doubled.outputs[0].name = "before", gate.name
    doubled.outputs[0].shape, doubled.outputs[0].type = output.shape, output.type
    other.graph.outputs[list(other.graph.outputs).index(output)] = doubled.outputs[0]
    results = [
        decide(graph.traced.program, model, shapes, hidden, trusted=graph.model)
        for model in (graph.model, other)
    ]
    assert [result.verdict for result in results] == [Verdict.IDENTICAL, Verdict.DIFFERENT]
    assert gate.name in results[0].compared
    assert results[1].different == (gate.name,)
    alone = decide(graph.traced.program, other, shapes, hidden)
    assert alone.verdict is Verdict.NOT_DECIDED


def changed(graph: PreparedGraph, change: Callable[[ir.Model], None]) -> Decision:
    model = graph.model.clone()
    change(model)
    return decided(graph, model, (1, 8, 8))


def test_a_graph_is_identical_in_all_outputs(digits: PreparedGraph) -> None:
    """Hidden ones, too, and the chance of an error is as small as documented."""
    decision = changed(digits, lambda model: None)
    assert decision.verdict is Verdict.IDENTICAL
    assert set(decision.compared) == {value.name for value in digits.model.graph.outputs}
    assert decision.error_bound < 1e-18
    assert str(decision).startswith(f"identical in {len(decision.compared)} outputs; chance of error ")


# ---- planted faults


def insert(model: ir.Model, value: ir.Value, operator: str, *others: ir.Value, **attributes: float) -> None:
    """Put an operator between a value and all of its users."""
    node = ir.node(operator, [value, *others], attributes)
    users = [(user, index) for user, index in value.uses() if user is not node]
    for user, index in users:
        user.replace_input_with(index, node.outputs[0])
    model.graph.insert_after(value.producer(), node)
    if value in model.graph.outputs:
        name = value.name
        value.name, node.outputs[0].name = f"{name}_before", name
        node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
        model.graph.outputs[model.graph.outputs.index(value)] = node.outputs[0]


def constant(model: ir.Model, number: object, dtype: type = np.float32) -> ir.Value:
    array = np.array(number, dtype)
    name = f"planted_{len(model.graph.initializers)}"
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    model.graph.register_initializer(value)
    return value


def first(model: ir.Model, operator: str, index: int = 0) -> ir.Value:
    """The result of a node with this operator."""
    return [node for node in model.graph if node.op_type == operator][index].outputs[0]


def middle_layer(model: ir.Model) -> ir.Value:
    return first(model, "Relu", 4)


def clip_at_1e30(model: ir.Model) -> None:
    insert(model, middle_layer(model), "Clip", constant(model, -1e30), constant(model, 1e30))


def add_1e30th(model: ir.Model) -> None:
    insert(model, middle_layer(model), "Add", constant(model, 1e-30))


def leaky_relu(model: ir.Model) -> None:
    node = middle_layer(model).producer()
    assert node is not None
    node.op_type = "LeakyRelu"
    node.attributes["alpha"] = ir.AttrFloat32("alpha", 1e-7)


def limited_relu(model: ir.Model) -> None:
    insert(model, middle_layer(model), "Min", constant(model, 3e38))


def one_ulp_factor(model: ir.Model) -> None:
    following = np.nextafter(np.float32(1), np.float32(2))
    insert(model, middle_layer(model), "Mul", constant(model, following))


def one_number_is_special(model: ir.Model) -> None:
    """The answer changes if any number of a layer is 0.3."""
    value = middle_layer(model)
    equal = ir.node("Equal", [value, constant(model, 0.3)])
    cast = ir.node("Cast", [equal.outputs[0]], {"to": 1})
    model.graph.insert_after(value.producer(), [equal, cast])
    total = ir.node("Add", [value, cast.outputs[0]])
    for user, index in value.uses():
        if user not in (equal, total):
            user.replace_input_with(index, total.outputs[0])
    model.graph.insert_after(cast, total)


def swap_last_columns(model: ir.Model) -> None:
    """Of the weights of the first layer: a permutation of equal sums."""
    name = next(name for name in model.graph.initializers if name.endswith("weight"))
    value = model.graph.initializers[name]
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    array[[0, 1]] = array[[1, 0]]
    value.const_value = ir.tensor(array, name=name)


def next_float(model: ir.Model) -> None:
    """One weight is off by one unit in the last place."""
    name = next(name for name in model.graph.initializers if name.endswith("weight"))
    value = model.graph.initializers[name]
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    array.flat[17] = np.nextafter(array.flat[17], np.float32(9))
    value.const_value = ir.tensor(array, name=name)


SUBTLE = [clip_at_1e30, add_1e30th, leaky_relu, limited_relu, one_ulp_factor, one_number_is_special]
SUBTLE += [swap_last_columns, next_float]


@pytest.mark.parametrize("fault", SUBTLE, ids=lambda fault: fault.__name__)
def test_the_subtlest_faults_are_different(digits: PreparedGraph, fault: Callable[[ir.Model], None]) -> None:
    """Sampled rows show none of them."""
    decision = changed(digits, fault)
    assert decision.verdict is Verdict.DIFFERENT, decision
    assert decision.different
    assert decision.first_difference is not None


@pytest.mark.parametrize("name", FAULTS)
def test_coarse_faults_are_different(digits: PreparedGraph, name: str) -> None:
    decision = changed(digits, FAULTS[name])
    assert decision.verdict is Verdict.DIFFERENT, decision


def test_the_first_difference_is_named(digits: PreparedGraph) -> None:
    relu = middle_layer(digits.model).producer()
    assert relu is not None
    decision = changed(digits, one_ulp_factor)
    following = next(user for user, _ in relu.outputs[0].uses())
    assert decision.first_difference is not None
    assert following.op_type in decision.first_difference


# ---- sizes


def with_rows(model: ir.Model, *nodes: tuple[str, list[object]]) -> ir.Value:
    """The number of rows of the input, after some operators; `None` among inputs is the value so far."""
    source = model.graph.inputs[0]
    shape = ir.node("Shape", [source], {"start": 0, "end": 1})
    chain = [shape]
    for operator, inputs in nodes:
        values = [
            chain[-1].outputs[0] if value is None else constant(model, value, np.int64) for value in inputs
        ]
        chain.append(ir.node(operator, values))
    model.graph.insert_before(next(iter(model.graph)), chain)
    return chain[-1].outputs[0]


def add_to_answer(model: ir.Model, number: ir.Value) -> None:
    cast = ir.node("Cast", [number], {"to": 1})
    assert number.producer() is not None
    model.graph.insert_after(number.producer(), cast)
    insert(model, middle_layer(model), "Add", cast.outputs[0])


def rows_are_37(model: ir.Model) -> None:
    add_to_answer(model, with_rows(model, ("Equal", [None, [37]])))


def rows_beyond_100(model: ir.Model) -> None:
    add_to_answer(model, with_rows(model, ("Sub", [None, [100]]), ("Max", [None, [0]])))


def rows_in_hundreds(model: ir.Model) -> None:
    add_to_answer(model, with_rows(model, ("Div", [None, [100]])))


@pytest.mark.parametrize("fault", [rows_are_37, rows_beyond_100, rows_in_hundreds], ids=lambda f: f.__name__)
def test_a_graph_that_asks_for_its_number_of_rows_is_not_decided(
    digits: PreparedGraph, fault: Callable[[ir.Model], None]
) -> None:
    """It is the same function at all sizes that were run."""
    decision = changed(digits, fault)
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert decision.reason is not None
    assert decision.reason.startswith("the graph computes with its sizes at ")


def test_a_graph_that_cuts_its_tensors_by_its_number_of_rows_is_not_decided(digits: PreparedGraph) -> None:
    """It drops the units of a layer for more than 1000 rows."""

    def cut(model: ir.Model) -> None:
        stop = with_rows(model, ("Sub", [[1000], None]), ("Mul", [None, [1000]]))
        zero, axis = constant(model, [0], np.int64), constant(model, [1], np.int64)
        insert(model, middle_layer(model), "Slice", zero, stop, axis)

    decision = changed(digits, cut)
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert decision.reason is not None
    assert "Slice: an end that is computed from sizes, which the network does not have" in decision.reason


def test_a_bound_beyond_the_sizes_that_are_run_is_not_decided(digits: PreparedGraph) -> None:
    """It cuts off rows after the thousandth."""

    def cut(model: ir.Model) -> None:
        zero, stop = constant(model, [0], np.int64), constant(model, [1000], np.int64)
        insert(model, middle_layer(model), "Slice", zero, stop, constant(model, [0], np.int64))

    decision = changed(digits, cut)
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert decision.reason is not None
    assert "Slice: a bound of 1000 for 1 places, which the network does not have" in decision.reason


class FirstSteps(nn.Module):
    """Cuts at a length that is longer than those that are run."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :500].sum(1)


def test_a_network_may_have_such_a_bound() -> None:
    graph = prepared(FirstSteps(), "x:float32[batch,4]")
    decision = decided(graph, graph.model, (4,))
    assert decision.verdict is Verdict.IDENTICAL, decision


def test_missing_outputs_and_inputs_are_not_decided(digits: PreparedGraph) -> None:
    gate = next(iter(digits.gates.origins))

    def without_gate(model: ir.Model) -> None:
        model.graph.outputs.remove(next(value for value in model.graph.outputs if value.name == gate))

    assert changed(digits, without_gate).reason == f"the graph has no output {gate}"

    def with_input(model: ir.Model) -> None:
        model.graph.inputs.append(
            ir.Value(name="more", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.FLOAT))
        )

    assert changed(digits, with_input).reason == "the graph has 2 inputs, the network 1"


class MeanOverRows(nn.Module):
    """Computes with its number of rows, as the trace does, too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * x.shape[0] + x.reshape(x.shape[0] * 2, 2).sum() / x.shape[0]


def test_a_network_may_compute_with_its_sizes() -> None:
    graph = prepared(MeanOverRows(), "x:float32[batch,4]")
    decision = decided(graph, graph.model, (4,))
    assert decision.verdict is Verdict.IDENTICAL, decision


def test_what_cannot_be_run_is_not_decided(digits: PreparedGraph) -> None:
    def unknown(model: ir.Model) -> None:
        insert(model, middle_layer(model), "Hardmax")

    decision = changed(digits, unknown)
    assert decision.verdict is Verdict.NOT_DECIDED
    assert str(decision).startswith("not decided: ")
    assert "Hardmax" in str(decision)
