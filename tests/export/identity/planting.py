"""Puts faults into a graph: operators around its values, other weights, and other attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]
Operand = ir.Value | Array | float | Sequence[int] | None
Build = Callable[[ir.Value], ir.Value]


class Plant:
    """A graph to plant a fault in. Every ONNX operator is a method that adds a node at a chosen place.

    Numbers among the inputs of an operator become float32 constants, lists become int64 ones.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self._put: Callable[[ir.Node], None] = self._first
        self._count = 0

    def __getattr__(self, operator: str) -> Callable[..., ir.Value]:
        def add(*inputs: Operand, domain: str = "", **attributes: Any) -> ir.Value:
            return self.add(operator, 1, *inputs, domain=domain, **attributes)[0]

        return add

    def add(
        self, operator: str, outputs: int, *inputs: Operand, domain: str = "", **attributes: Any
    ) -> list[ir.Value]:
        """Add a node with any number of outputs."""
        values = [self.operand(operand) for operand in inputs]
        node = ir.node(operator, values, attributes, domain=domain, num_outputs=outputs)
        for value in node.outputs:
            value.name = self._name()
        self._put(node)
        return list(node.outputs)

    def operand(self, operand: Operand) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, float):
            return self.constant(np.array(operand, np.float32))
        return self.constant(operand if isinstance(operand, np.ndarray) else np.array(operand, np.int64))

    def constant(self, array: Array) -> ir.Value:
        name = self._name()
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
        self.model.graph.register_initializer(value)
        return value

    def __getitem__(self, name: str) -> ir.Value:
        """A value by name."""
        graph = self.model.graph
        values = [*graph.inputs, *graph.initializers.values()]
        values += [value for node in graph for value in node.outputs]
        return next(value for value in values if value.name == name)

    def producer(self, name: str) -> ir.Node:
        node = self[name].producer()
        assert node is not None, name
        return node

    def weight(self, name: str, change: Callable[[Array], Array | None]) -> Plant:
        """Change a weight, in place or by another array."""
        value = self.model.graph.initializers[name]
        assert value.const_value is not None
        array = value.const_value.numpy().copy()
        changed = change(array)
        value.const_value = ir.tensor(array if changed is None else changed, name=name)
        return self

    def attribute(self, name: str, key: str, setting: Any) -> Plant:
        """Set an attribute of the node that computes a value, or drop it, by None."""
        node = self.producer(name)
        if setting is None:
            del node.attributes[key]
        else:
            node.attributes[key] = ir.convenience.convert_attribute(key, setting)
        return self

    def operator(self, name: str, operator: str, **attributes: Any) -> Plant:
        """Another operator for the node that computes a value."""
        node = self.producer(name)
        node.op_type = operator
        for key, setting in attributes.items():
            self.attribute(name, key, setting)
        return self

    def wrap(self, name: str, build: Build) -> None:
        """Compute another value from a value, and use it instead of that everywhere."""
        value = self[name]
        users = list(value.uses())
        if value.producer() is None:
            self._put = self._first
        else:
            self._put = self._after(self.producer(name))
        replacement = build(value)
        for user, index in users:
            user.replace_input_with(index, replacement)
        outputs = self.model.graph.outputs
        if value in outputs:
            value.name, replacement.name = f"{name}_before", name
            replacement.shape, replacement.type = value.shape, value.type
            outputs[outputs.index(value)] = replacement

    def answer(self, name: str, build: Build) -> None:
        """Compute another value from an output, for the output alone: nothing else of the graph changes."""
        value, outputs = self[name], self.model.graph.outputs
        self._put = self._after(self.producer(name))
        replacement = build(value)
        value.name, replacement.name = f"{name}_before", name
        replacement.shape, replacement.type = value.shape, value.type
        outputs[outputs.index(value)] = replacement

    def feed(self, name: str, index: int, build: Build | Operand) -> Plant:
        """Another input for the node that computes a value."""
        node = self.producer(name)
        self._put = self._before(node)
        value = node.inputs[index] if index < len(node.inputs) else None
        if callable(build):
            assert value is not None
            replacement: ir.Value | None = build(value)
        else:
            replacement = self.operand(build)
        if index >= len(node.inputs):
            node.resize_inputs(index + 1)
        node.replace_input_with(index, replacement)
        return self

    def swap(self, name: str, first: int, second: int) -> None:
        """Swap two inputs of the node that computes a value."""
        node = self.producer(name)
        one, other = node.inputs[first], node.inputs[second]
        node.replace_input_with(first, other)
        node.replace_input_with(second, one)

    def size(self, axis: int = 0, index: int = 0) -> ir.Value:
        """One size of an input, as a tensor of shape [1]."""
        return self.Shape(self.model.graph.inputs[index], start=axis, end=axis + 1)

    def when(self, condition: ir.Value) -> ir.Value:
        """1.0 where a condition is true, or else 0.0."""
        return self.Cast(condition, to=1)

    def branch(self, condition: ir.Value, then: Build, otherwise: Build, value: ir.Value) -> ir.Value:
        """An If whose branches compute with a value from outside."""
        branches = [self._body(build, value, [], []) for build in (then, otherwise)]
        return self.If(self.Squeeze(condition), then_branch=branches[0], else_branch=branches[1])

    def loop(self, count: Operand, start: ir.Value, step: Build) -> ir.Value:
        """A Loop that takes a step from a value a number of times."""
        number = ir.Value(name=self._name(), shape=ir.Shape([]), type=ir.TensorType(ir.DataType.INT64))
        going = ir.Value(name=self._name(), shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
        state = ir.Value(name=self._name(), shape=start.shape, type=start.type)
        body = self._body(step, state, [number, going, state], [going])
        return self.Loop(count, self.constant(np.array(True)), start, body=body)

    def _body(
        self, build: Build, value: ir.Value, inputs: list[ir.Value], outputs: list[ir.Value]
    ) -> ir.Graph:
        nodes: list[ir.Node] = []
        put, self._put = self._put, nodes.append
        results = [self.Identity(output) for output in outputs] + [build(value)]
        self._put = put
        return ir.Graph(inputs, results, nodes=nodes, name=self._name())

    def _name(self) -> str:
        self._count += 1
        return f"planted_{self._count}"

    def _first(self, node: ir.Node) -> None:
        graph = self.model.graph
        if len(graph) == 0:
            graph.append(node)
        else:
            graph.insert_before(graph[0], node)
        self._put = self._after(node)

    def _after(self, place: ir.Node) -> Callable[[ir.Node], None]:
        def put(node: ir.Node) -> None:
            self.model.graph.insert_after(place, node)
            self._put = self._after(node)

        return put

    def _before(self, place: ir.Node) -> Callable[[ir.Node], None]:
        return lambda node: self.model.graph.insert_before(place, node)
