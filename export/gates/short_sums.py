"""Shortens gated sums: T H + (1 - T) x becomes x + T (H - x), which is one operator less for each layer.

In networks of few units, every operator takes a noticeable part of a run. The two forms are equal except for
rounding, which the proof judges, and infinities. Where x is infinite, the first form gives infinity if T < 1,
and the second gives NaN, as H - x is infinite too. So layers that carry an input of the network keep the
first form. Behind a matrix, an infinity is in all units, and the matrices of the next layer turn it into NaN
in H and T. Then both forms return NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from turnpike.export.gates.gate_names import rename
from turnpike.export.gates.graph.nodes import first_input, is_all_ones, is_float, present_inputs
from turnpike.service.artifact.manifest import Gate

# operators that compute each value from many others
MIXING_OPS = frozenset({"Gemm", "MatMul", "Conv", "ConvTranspose", "GRU", "LSTM", "RNN", "Scan", "Loop"})


@dataclass(frozen=True)
class LongSum:
    """The parts of y = T H + (1 - T) x, as nodes and values of a graph.

    Attributes:
        node: The addition.
        unneeded: The nodes to remove, each before the nodes whose values it uses.
    """

    node: ir.Node
    unneeded: tuple[ir.Node, ...]
    transform_gate: ir.Value
    transformed: ir.Value
    carried: ir.Value


def shorten_sums(model: ir.Model, gates: Sequence[Gate]) -> int:
    """Shorten the gated sums of an instrumented graph in place, and return their number.

    Outputs and their names, levers and weights stay. A sum stays as it is if anything else uses 1 - T or one
    of the products.
    """
    graph = model.graph
    outputs = {value.name: value for value in graph.outputs}
    # the gates of a loop are not in this graph: their outputs are those of the loop
    layer_outputs = {
        _original(outputs[gate.output]): gate.output for gate in gates if gate.output is not None
    }
    count = 0
    for output, name in layer_outputs.items():
        long_sum = _match(output)
        if long_sum is not None and not _carries_network_input(long_sum.carried):
            _shorten(graph, long_sum, name)
            count += 1
    return count


def _original(value: ir.Value) -> ir.Value:
    """The value that a hidden output is a copy of."""
    while (node := value.producer()) is not None and node.op_type in {"Identity", "Transpose"}:
        value = first_input(node)
    return value


def _match(output: ir.Value) -> LongSum | None:
    """The sum that computes a value, if it has the long form and nothing else uses its parts."""
    node = output.producer()
    if node is None or node.op_type != "Add":
        return None
    for first, second in _both_orders(node):
        transforming, carrying = _own_node(first, "Mul"), _own_node(second, "Mul")
        if transforming is None or carrying is None:
            continue
        for complement, carried in _both_orders(carrying):
            difference = _own_node(complement, "Sub")
            if difference is None or not is_all_ones(difference.inputs[0]):
                continue
            for transform_gate, transformed in _both_orders(transforming):
                if transform_gate is difference.inputs[1]:
                    unneeded = (transforming, carrying, difference)
                    return LongSum(node, unneeded, transform_gate, transformed, carried)
    return None


def _both_orders(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The two inputs of a commutative operator, and the same in reverse."""
    first, second = present_inputs(node)
    yield first, second
    yield second, first


def _own_node(value: ir.Value, op_type: str) -> ir.Node | None:
    """The operator that computes a value, if it has this type and only one operator uses the value."""
    node = value.producer()
    is_own = node is not None and node.op_type == op_type and not node.domain
    return node if is_own and len(value.uses()) == 1 and not value.is_graph_output() else None


def _carries_network_input(carried: ir.Value) -> bool:
    """Whether a value is an input of floats, or is computed from one without a matrix."""
    waiting, seen = [carried], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        # integers, such as the shape of a recurrent network's first state, are finite
        if value in seen or not is_float(value):
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            if value.is_graph_input() and not value.is_initializer():
                return True
        elif node.op_type not in MIXING_OPS:
            waiting += present_inputs(node)
    return False


def _shorten(graph: ir.Graph, long_sum: LongSum, name: str) -> None:
    """Replace the inputs of the addition by x and T (H - x), and remove what it had before."""
    difference = ir.node("Sub", [long_sum.transformed, long_sum.carried])
    product = ir.node("Mul", [long_sum.transform_gate, difference.outputs[0]])
    graph.insert_before(long_sum.node, [difference, product])
    for node, part in ((difference, "difference"), (product, "change")):
        node.outputs[0].type = long_sum.carried.type
        rename(node.outputs[0], f"{name}.{part}")
    long_sum.node.replace_input_with(0, long_sum.carried)
    long_sum.node.replace_input_with(1, product.outputs[0])
    graph.remove(long_sum.unneeded, safe=True)
