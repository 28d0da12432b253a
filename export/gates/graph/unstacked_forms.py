"""Writes sums over stacked values without the stack, beside them.

`(stack([h, x]) * stack([t, c])).sum(0)` is t h + c x, but a graph of it has neither of these products. An
unstacked form is added to the graph: nodes that compute the same numbers from h, x, t and c themselves, and
that nothing uses. The search for gates reads it in place of the stacked operators. Gates found in it stay in
the graph, and `remove_unused` takes out the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.graph.nodes import (
    Array,
    attribute,
    axes_of,
    constant_integers,
    first_input,
    present_inputs,
)

ELEMENTWISE_OPS = frozenset({"Mul", "Add", "Sub", "Div", "Neg", "Cast"})
UNCHANGING_OPS = frozenset({"Identity", "Dropout"})
CUTTING_OPS = frozenset({"Split", "Slice", "Gather"})
# parts of a stack; more than three branches are a mixture of experts
MAX_PARTS = 3
# since this opset, axes and bounds are inputs of all operators that are added
MIN_OPSET = 13
# operators of one unstacked form, against graphs built to be slow
MAX_OPERATORS = 48

Dims: TypeAlias = list[int | str | None]


@dataclass(frozen=True)
class Formula:
    """An operator to be added to the graph."""

    op: str
    operands: tuple[Operand, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


# a value of the graph, a formula, or a constant
Operand: TypeAlias = "ir.Value | Formula | Array"


class TooComplexError(Exception):
    """The unstacked form would have more than MAX_OPERATORS operators."""


class UnstackedForms:
    """The unstacked forms of one graph. They are added to it at once."""

    def __init__(self, graph: ir.Graph, opset: int) -> None:
        self._graph = graph
        self._forms: dict[ir.Value, ir.Value] = {}
        self._added: list[ir.Node] = []
        # whether the form that is being built takes something out of a stack or reverses a transposition
        self._is_simpler = False
        self._operators = 0
        for node in list(graph) if opset >= MIN_OPSET else ():
            for output in node.outputs:
                self._is_simpler, self._operators = False, 0
                try:
                    formula = self._formula(node, output)
                except TooComplexError:
                    continue
                if formula is not None and self._is_simpler:
                    self._forms[output] = self._add(formula, before=node)
        self._nodes = frozenset(self._added)

    def get(self, value: ir.Value) -> ir.Value | None:
        """The unstacked form of a value; None if it has none."""
        return self._forms.get(value)

    def __contains__(self, node: ir.Node) -> bool:
        """Whether a node was added to the graph for a unstacked form."""
        return node in self._nodes

    def remove_unused(self) -> None:
        """Take the nodes out of the graph that nothing uses."""
        for node in reversed(self._added):
            if not any(output.uses() or output.is_graph_output() for output in node.outputs):
                self._graph.remove(node, safe=True)

    # ---- adding nodes

    def _add(self, operand: Operand, before: ir.Node) -> ir.Value:
        if isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, Formula):
            inputs = [self._add(part, before) for part in operand.operands]
            node = ir.node(operand.op, inputs, operand.attributes)
        else:
            node = ir.node("Constant", [], {"value": ir.tensor(operand)})
        self._graph.insert_before(before, node)
        self._added.append(node)
        return node.outputs[0]

    # ---- formulas of the operators that hide products

    def _formula(self, node: ir.Node, output: ir.Value) -> Operand | None:
        match node.op_type:
            case "ReduceSum" | "ReduceMean":
                return self._reduction(node)
            case "MatMul":
                return self._matrix_product(node)
            case "Einsum":
                return self._einsum(node)
            case "Transpose" if perm := attribute(node, "perm"):
                return self._transposed(first_input(node), list(perm))
            case "Split" | "Slice" | "Gather":
                cut = _cut_of(output)
                return None if cut is None else self._take(cut)
            case "Squeeze":
                return self._squeezed(node)
        return None

    def _reduction(self, node: ir.Node) -> Operand | None:
        source = first_input(node)
        dims, axes = dims_of(source), axes_of(node)
        if not dims or axes is None or len(axes) != 1:
            return None
        axis = axes[0] % len(dims)
        parts = self._parts(source, axis, keeps_axis=bool(attribute(node, "keepdims", 1)))
        if parts is None or node.op_type == "ReduceSum":
            return _sum_of(parts)
        dtype = (source.dtype or ir.DataType.FLOAT).numpy()
        total = _sum_of(parts)
        return None if total is None else Formula("Div", (total, np.array(len(parts), dtype)))

    def _matrix_product(self, node: ir.Node) -> Operand | None:
        left, right = present_inputs(node)
        left_dims, right_dims = dims_of(left), dims_of(right)
        if left_dims is None or right_dims is None or min(len(left_dims), len(right_dims)) < 2:
            return None
        left_parts = self._parts(left, len(left_dims) - 1, keeps_axis=True)
        right_parts = self._parts(right, len(right_dims) - 2, keeps_axis=True)
        return _sum_of_products(left_parts, right_parts)

    def _einsum(self, node: ir.Node) -> Operand | None:
        equation = str(attribute(node, "equation")).replace(" ", "")
        sources = present_inputs(node)
        labels = _labels_of(equation, [dims_of(source) for source in sources])
        if labels is None or len(sources) != 2:
            return None
        *inputs, result = labels
        summed = [label for label in inputs[0] if label in inputs[1] and label not in result]
        others = [label for label in (*inputs[0], *inputs[1]) if label not in summed]
        if len(summed) != 1 or not set(others) <= set(result):
            return None
        factors = []
        for source, own in zip(sources, inputs, strict=True):
            parts = self._parts(source, own.index(summed[0]), keeps_axis=False)
            rest = [label for label in own if label not in summed]
            factors.append(None if parts is None else [_arranged(part, rest, result) for part in parts])
        return _sum_of_products(*factors)

    def _squeezed(self, node: ir.Node) -> Operand | None:
        source, axes = first_input(node), axes_of(node)
        dims = dims_of(source)
        if not dims or axes is None or len(axes) != 1:
            return None
        axis = axes[0] % len(dims)
        cut = _cut_of(source)
        if cut is not None and cut.axis == axis and not cut.drops_axis:
            return self._take(Cut(cut.source, axis, cut.start, cut.stop, drops_axis=True))
        return self._take(Cut(source, axis, 0, 1, drops_axis=True))

    # ---- parts of values

    def _parts(self, source: ir.Value, axis: int, *, keeps_axis: bool) -> list[Operand] | None:
        """The elements of a short axis; None if it is long."""
        size = (dims_of(source) or [])[axis]
        if not isinstance(size, int) or not 2 <= size <= MAX_PARTS:
            return None
        return [
            self._take(Cut(source, axis, number, number + 1, drops_axis=not keeps_axis))
            for number in range(size)
        ]

    def _take(self, cut: Cut) -> Operand:
        """A part of a value, computed from parts of what the value is computed from."""
        node, dims = cut.source.producer(), dims_of(cut.source)
        if dims is not None and (cut.start, cut.stop) == (0, dims[cut.axis]) and not cut.drops_axis:
            return cut.source
        self._count_operator()
        if node is not None and dims is not None:
            if node.op_type in UNCHANGING_OPS:
                return self._take(cut.of(first_input(node)))
            if node.op_type in ELEMENTWISE_OPS and all(
                dims_of(value) is not None for value in present_inputs(node)
            ):
                return Formula(
                    node.op_type,
                    tuple(self._take_of_operand(value, cut, len(dims)) for value in present_inputs(node)),
                    _attributes(node),
                )
            for take in (self._take_of_concat, self._take_of_unsqueeze, self._take_of_reshape):
                if (part := take(node, cut)) is not None:
                    return part
        if cut.drops_axis:
            return Formula("Gather", (cut.source, np.array(cut.start)), {"axis": cut.axis})
        bounds = (np.array([cut.start]), np.array([cut.stop]), np.array([cut.axis]))
        return Formula("Slice", (cut.source, *bounds))

    def _take_of_operand(self, operand: ir.Value, cut: Cut, rank: int) -> Operand:
        """The part of an operand that is broadcast to the value of the cut."""
        dims = dims_of(operand) or []
        axis = cut.axis - rank + len(dims)
        if axis < 0:
            return operand
        if dims[axis] == 1:
            return self._take(Cut(operand, axis, 0, 1, cut.drops_axis))
        return self._take(Cut(operand, axis, cut.start, cut.stop, cut.drops_axis))

    def _take_of_concat(self, node: ir.Node, cut: Cut) -> Operand | None:
        dims = dims_of(cut.source) or []
        if node.op_type != "Concat" or attribute(node, "axis") % len(dims) != cut.axis:
            return None
        start = 0
        for part in present_inputs(node):
            size = (dims_of(part) or dims)[cut.axis]
            if not isinstance(size, int):
                return None
            if start <= cut.start and cut.stop <= start + size:
                self._is_simpler = True
                return self._take(Cut(part, cut.axis, cut.start - start, cut.stop - start, cut.drops_axis))
            start += size
        return None

    def _take_of_unsqueeze(self, node: ir.Node, cut: Cut) -> Operand | None:
        axes, dims = axes_of(node), dims_of(cut.source)
        if node.op_type != "Unsqueeze" or axes is None or dims is None:
            return None
        axes = sorted(axis % len(dims) for axis in axes)
        if cut.axis in axes:
            return first_input(node) if cut.drops_axis and len(axes) == 1 else None
        before = sum(axis < cut.axis for axis in axes)
        inner = self._take(Cut(first_input(node), cut.axis - before, cut.start, cut.stop, cut.drops_axis))
        new_axes = [axis - (cut.drops_axis and axis > cut.axis) for axis in axes]
        return Formula("Unsqueeze", (inner, np.array(new_axes)))

    def _take_of_reshape(self, node: ir.Node, cut: Cut) -> Operand | None:
        """One block of an axis that a Reshape cuts into equal blocks."""
        source = first_input(node) if node.op_type == "Reshape" else None
        axis = None if source is None else _axis_cut_in_two(dims_of(source), dims_of(cut.source))
        if source is None or axis != cut.axis or not cut.drops_axis:
            return None
        size = (dims_of(cut.source) or [])[axis + 1]
        if not isinstance(size, int):
            return None
        return self._take(Cut(source, axis, cut.start * size, cut.stop * size, drops_axis=False))

    def _transposed(self, value: ir.Value, perm: list[int]) -> Operand:
        self._count_operator()
        if perm == list(range(len(perm))):
            return value
        node = value.producer()
        if node is not None and node.op_type == "Transpose" and attribute(node, "perm"):
            inner = attribute(node, "perm")
            self._is_simpler |= [inner[axis] for axis in perm] == list(range(len(perm)))
            return self._transposed(first_input(node), [inner[axis] for axis in perm])
        if node is not None and node.op_type in ELEMENTWISE_OPS:
            ranks = [
                len(dims) if (dims := dims_of(value)) is not None else -1 for value in present_inputs(node)
            ]
            if set(ranks) <= {0, len(perm)}:
                operands = tuple(
                    self._transposed(operand, perm) if rank else operand
                    for operand, rank in zip(present_inputs(node), ranks, strict=True)
                )
                return Formula(node.op_type, operands, _attributes(node))
        return Formula("Transpose", (value,), {"perm": perm})

    def _count_operator(self) -> None:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise TooComplexError


@dataclass(frozen=True)
class Cut:
    """Elements from start to stop along an axis of a value. If `drops_axis`, it is one, without the axis."""

    source: ir.Value
    axis: int
    start: int
    stop: int
    drops_axis: bool = False

    def of(self, source: ir.Value) -> Cut:
        """The same part of another value."""
        return Cut(source, self.axis, self.start, self.stop, self.drops_axis)


def dims_of(value: ir.Value) -> Dims | None:
    """The dimensions: numbers, names, or None for one that is unknown; None if the rank is unknown."""
    if value.shape is None:
        return None
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def _cut_of(value: ir.Value) -> Cut | None:
    """The cut that a Split, Slice or Gather makes along one axis; None for any other one."""
    node = value.producer()
    if node is None or node.op_type not in CUTTING_OPS:
        return None
    source = first_input(node)
    dims = dims_of(source)
    if not dims:
        return None
    match node.op_type:
        case "Split":
            return _cut_of_split(node, source, value)
        case "Gather":
            axis, index = attribute(node, "axis", 0) % len(dims), constant_integers(node.inputs[1])
            size, index_dims = dims[axis], dims_of(present_inputs(node)[1])
            if index is None or len(index) != 1 or index_dims is None or not isinstance(size, int):
                return None
            start = index[0] % size
            return Cut(source, axis, start, start + 1, not index_dims) if len(index_dims) < 2 else None
        case "Slice":
            bounds = [constant_integers(bound) for bound in node.inputs[1:]]
            if len(bounds) < 3 or any(bound is None or len(bound) != 1 for bound in bounds):
                return None
            (start,), (stop,), (axis,), *steps = [bound or [0] for bound in bounds]
            size = dims[axis]
            if not isinstance(size, int) or any(step != [1] for step in steps):
                return None
            start, stop, _ = slice(start, stop).indices(size)
            return Cut(source, axis % len(dims), start, stop) if start < stop else None
    return None


def _cut_of_split(node: ir.Node, source: ir.Value, output: ir.Value) -> Cut | None:
    axis = attribute(node, "axis", 0) % len(dims_of(source) or [0])
    sizes = [(dims_of(part) or [None])[axis if dims_of(part) else 0] for part in node.outputs]
    before = sizes[: node.outputs.index(output) + 1]
    lengths = [size for size in before if isinstance(size, int)]
    if len(lengths) < len(before):
        return None
    return Cut(source, axis, sum(lengths[:-1]), sum(lengths))


def _axis_cut_in_two(before: Dims | None, after: Dims | None) -> int | None:
    """The axis of `before` that `after` has as two axes, of which all other axes are equal."""
    if before is None or after is None or len(after) != len(before) + 1:
        return None
    for axis, size in enumerate(before):
        blocks, length = after[axis], after[axis + 1]
        others = [*before[:axis], *before[axis + 1 :]]
        if (
            isinstance(blocks, int)
            and isinstance(length, int)
            and size == blocks * length
            and others == [*after[:axis], *after[axis + 2 :]]
            and None not in others
        ):
            return axis
    return None


def _sum_of(parts: Sequence[Operand] | None) -> Operand | None:
    if parts is None:
        return None
    total, *others = parts
    for part in others:
        total = Formula("Add", (total, part))
    return total


def _sum_of_products(left: Sequence[Operand] | None, right: Sequence[Operand] | None) -> Operand | None:
    if left is None or right is None:
        return None
    return _sum_of([Formula("Mul", factors) for factors in zip(left, right, strict=True)])


def _labels_of(equation: str, dims: Sequence[Dims | None]) -> list[list[str]] | None:
    """The label of each axis of the operands and of the result; None for what an einsum seldom has."""
    terms = equation.replace("->", ",").split(",")
    ranks = [len(operand_dims) for operand_dims in dims if operand_dims is not None]
    if "->" not in equation or len(ranks) != len(terms) - 1:
        return None
    hidden = [rank - len(term.replace("...", "")) for rank, term in zip(ranks, terms, strict=False)]
    if len(set(hidden)) != 1 or hidden[0] < 0 or any(("..." in term) != (hidden[0] > 0) for term in terms):
        return None
    labels = []
    for term in terms:
        first, _, last = term.partition("...")
        more = [f".{number}" for number in range(hidden[0])] if "..." in term else []
        labels.append([*first, *more, *last])
    return labels if all(len(set(axes)) == len(axes) for axes in labels) else None


def _arranged(part: Operand, labels: list[str], result: list[str]) -> Operand:
    """A part whose axes have these labels, with the axes of the result."""
    order = sorted(range(len(labels)), key=lambda axis: result.index(labels[axis]))
    if order != list(range(len(labels))):
        part = Formula("Transpose", (part,), {"perm": order})
    missing = [axis for axis, label in enumerate(result) if label not in labels]
    return Formula("Unsqueeze", (part, np.array(missing))) if missing else part


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: entry.value for name, entry in node.attributes.items()}
