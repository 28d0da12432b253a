"""Takes the body of a loop, or a branch, apart from the graph around it: its gates are found like others.

A body uses values of the graph around it that are not among its inputs. While it is detached, each of them
is replaced by an input of the body, or by an initializer if it is a weight. Attaching the body again undoes
this, and hands its new outputs and levers on to the graph around it: what the body has at one step, the graph
has for all steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from turnpike.export.gates.graph.nodes import Array, attribute, constant_array, subgraphs

LOOP_OPS = frozenset({"Scan", "Loop"})
# inputs and outputs of a body that come before its states: of a Loop, the step and the condition
INPUTS_BEFORE_STATES = {"Scan": 0, "Loop": 2}
OUTPUTS_BEFORE_STATES = {"Scan": 0, "Loop": 1}
# the largest constant, in elements, that is computed while a body is detached
MAX_FOLDED_ELEMENTS = 1 << 26


def loop_bodies(graph: ir.Graph) -> Iterator[InnerGraph]:
    """The bodies of all loops of a graph, without loops inside loops, in the order data flows."""
    for node in graph:
        if node.op_type in LOOP_OPS and node.domain == "":
            yield InnerGraph(graph, node)


def unshown_graphs(graph: ir.Graph, *, in_loop: bool = False) -> Iterator[InnerGraph]:
    """The graphs inside a graph that cannot hand on outputs: branches of If, and loops inside loops."""
    for node in graph:
        is_loop = node.op_type in LOOP_OPS and node.domain == ""
        for name, entry in node.attributes.items():
            if entry.type is ir.AttributeType.GRAPH:
                if in_loop or not is_loop:
                    yield InnerGraph(graph, node, name)
                yield from unshown_graphs(entry.as_graph(), in_loop=True)


class InnerGraph:
    """The body of a loop, or a branch of an If, attached to the graph around it.

    Attributes:
        node: The Scan, Loop or If.
        graph: The body.
    """

    def __init__(self, outer: ir.Graph, node: ir.Node, attribute_name: str = "body") -> None:
        self.node = node
        self.graph: ir.Graph = node.attributes[attribute_name].as_graph()
        self._outer = outer
        self._own_initializers = set(self.graph.initializers.values())
        self._output_count = len(self.graph.outputs)
        self._stand_ins: dict[ir.Value, ir.Value] = {}  # value of the outer graph -> its stand-in

    @property
    def states(self) -> dict[ir.Value, ir.Value]:
        """The state before a step, by the state after it."""
        if self.node.op_type not in LOOP_OPS:
            return {}
        before, after = INPUTS_BEFORE_STATES[self.node.op_type], OUTPUTS_BEFORE_STATES[self.node.op_type]
        if self.node.op_type == "Scan":
            count = len(self.node.inputs) - int(attribute(self.node, "num_scan_inputs"))
        else:
            count = len(self.node.inputs) - before
        inputs = self.graph.inputs[before : before + count]
        return dict(zip(self.graph.outputs[after : after + count], inputs, strict=False))

    def detach(self) -> None:
        """Replace each value of the outer graph by a stand-in that belongs to the body."""
        inside = {*self.graph.inputs, *self.graph.initializers.values()}
        nodes = list(self.graph.all_nodes())
        for node in nodes:
            inside.update(node.outputs)
            for nested in subgraphs(node):
                inside.update(nested.inputs, nested.initializers.values())
        for node in nodes:
            for number, value in enumerate(node.inputs):
                if value is not None and value not in inside:
                    node.replace_input_with(number, self._stand_in(value))

    def attach(self) -> None:
        """Put the values of the outer graph back, and hand new initializers and levers on to it."""
        for value, stand_in in self._stand_ins.items():
            is_lever = stand_in in self.graph.inputs and stand_in.name in self.graph.initializers
            self._remove(stand_in)
            ir.convenience.replace_all_uses_with(stand_in, value)
            if is_lever and value not in self._outer.inputs:
                self._outer.inputs.append(value)
        for value in [*self.graph.initializers.values()]:
            is_lever = value in self.graph.inputs
            if value in self._own_initializers and not is_lever:
                continue
            self._remove(value)
            existing = self._outer.initializers.get(str(value.name))
            if existing is not None:
                ir.convenience.replace_all_uses_with(value, existing)
                continue
            self._outer.register_initializer(value)
            if is_lever:
                self._outer.inputs.append(value)

    def new_outputs(self) -> list[ir.Value]:
        """Hand the outputs that the body got on to the graph, for all rows and steps.

        Returns:
            The values in the graph, with the names that the outputs of the body had.
        """
        return [self._output_of_all_steps(value) for value in self.graph.outputs[self._output_count :]]

    def _output_of_all_steps(self, value: ir.Value) -> ir.Value:
        name = str(value.name)
        value.name = f"{name}.step"
        node = self.node
        node.resize_outputs(len(node.outputs) + 1)
        steps = node.outputs[-1]
        dims = [] if value.shape is None else list(value.shape)
        steps.name, steps.type = f"{name}.steps", value.type
        count = self.step_count
        steps.shape = ir.Shape([count, *dims])
        if node.op_type == "Scan":
            self._extend_scan_attributes()
        # rows first, then steps
        transpose = ir.node("Transpose", [steps], {"perm": [1, 0, *range(2, len(dims) + 1)]})
        (rows,) = transpose.outputs
        rows.name = transpose.name = name
        rows.type, rows.shape = value.type, ir.Shape([dims[0], count, *dims[1:]])
        self._outer.insert_after(node, transpose)
        return rows

    @property
    def step_count(self) -> int | str | None:
        """The number of steps, or its name: the size of what a Scan goes through."""
        sequence = self.node.inputs[-1]
        if self.node.op_type != "Scan" or sequence is None or not sequence.shape:
            return None
        axes: list[int] = attribute(self.node, "scan_input_axes") or [0]
        size = sequence.shape[axes[-1]]
        return size if isinstance(size, int) else size.value

    def _extend_scan_attributes(self) -> None:
        """The steps of a new output are in the order of the inputs' steps, along the first axis."""
        directions = list(attribute(self.node, "scan_input_directions") or [])
        backwards = bool(directions) and all(directions)
        count = len(self.node.outputs) - len(self.states)
        for name, number in (("scan_output_directions", int(backwards)), ("scan_output_axes", 0)):
            known = list(attribute(self.node, name) or [])
            if known or number:
                known += [0] * (count - 1 - len(known))
                self.node.attributes[name] = ir.AttrInt64s(name, [*known, number])

    def _remove(self, value: ir.Value) -> None:
        if value in self.graph.inputs:
            self.graph.inputs.remove(value)
        self.graph.initializers.pop(str(value.name), None)

    def _stand_in(self, value: ir.Value) -> ir.Value:
        if value not in self._stand_ins:
            data = constant_of(value, self._outer)
            stand_in = ir.Value(
                name=value.name,
                shape=value.shape if data is None else ir.Shape(data.shape),
                type=value.type,
                const_value=None if data is None else ir.tensor(data, name=value.name),
            )
            if value.is_initializer() and self._is_only_used_here(value):
                self.graph.register_initializer(stand_in)
            else:
                self.graph.inputs.append(stand_in)
            self._stand_ins[value] = stand_in
        return self._stand_ins[value]

    def _is_only_used_here(self, value: ir.Value) -> bool:
        nodes = set(self.graph.all_nodes())
        return not value.is_graph_output() and all(user in nodes for user, _ in value.uses())


def constant_of(value: ir.Value, graph: ir.Graph) -> Array | None:
    """The constant that a value has if it depends on weights alone.

    None if it depends on an input, or if computing it may take much memory.
    """
    known = constant_array(value)
    if known is not None or value.producer() is None:
        return known
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        source = waiting.pop()
        if source in seen or source.is_initializer():
            continue
        seen.add(source)
        node = source.producer()
        if node is None or any(subgraphs(node)) or not _is_small(source):
            return None
        waiting.extend(value for value in node.inputs if value is not None)
    try:
        alone = ir.Model(ir.convenience.extract(graph, [], [value]), ir_version=10)
        (result,) = ReferenceEvaluator(ir.to_proto(alone)).run(None, {})
    except Exception:  # the evaluator's operators raise almost anything
        return None
    return np.asarray(result)


def _is_small(value: ir.Value) -> bool:
    """Whether a value is known to have not too many elements."""
    sizes = [None] if value.shape is None else list(value.shape)
    if not all(isinstance(size, int) for size in sizes):
        return False
    return math.prod(size for size in sizes if isinstance(size, int)) <= MAX_FOLDED_ELEMENTS
