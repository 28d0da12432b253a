"""Integers that are written into a graph: where its tensors are cut, padded, read or reshaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic.terms import NO_BOUND, Array

# (operator, input or attribute, numbers)
_Literal: TypeAlias = tuple[str, str, bytes]

# places this close to an end are within the inputs of the runs
SEEN = 2
# attributes that count axes, or name dtypes
ENUMERATIONS = frozenset(("axis", "axes", "perm", "to", "dtype"))
INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def other_literal(trusted: ir.Model, model: ir.Model) -> str | None:
    """A node with an integer that no node, or fewer nodes, of its kind have in the trusted graph.

    A graph could make an axis longer that grows with the input, and cut it at a fixed place: short inputs, as
    those of the runs, lose nothing, and long ones do.
    """
    left = Counter(literal for _, literal in _literals(trusted))
    for node, literal in _literals(model):
        left[literal] -= 1
        if left[literal] < 0:
            outputs = ", ".join(str(value.name) for value in node.outputs)
            return f"{outputs} = {node.op_type}: {literal[1]}, unlike in the export of the network"
    return None


def _literals(model: ir.Model) -> Iterator[tuple[ir.Node, _Literal]]:
    for node in model.graph.all_nodes():
        if node.op_type == "Constant":
            continue
        constants = [None if value is None else _constant(value) for value in node.inputs]
        given = [
            constant for constant, value in zip(constants, node.inputs, strict=True) if value is not None
        ]
        if given and None not in given:
            # integers may be computed, such as the length of a weight
            yield node, (node.op_type, "computed from constants alone", b"")
        for place, constant in enumerate(constants):
            if constant is not None and constant.dtype in INTEGERS and _may_hide(constant.numpy()):
                numbers = constant.numpy().astype(np.int64)
                yield node, (node.op_type, f"the integers of input {place}", numbers.tobytes())
        for name, attribute in node.attributes.items():
            if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and name not in ENUMERATIONS:
                numbers = np.ravel(np.asarray(attribute.value, np.int64))
                if _may_hide(numbers):
                    yield node, (node.op_type, f"the attribute {name}", numbers.tobytes())


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    """The number that a value always has, if it is written into the graph."""
    if value.is_graph_input():
        return None
    producer = value.producer()
    if producer is None or producer.op_type != "Constant":
        return value.const_value
    return ir.convenience.get_const_tensor(value)


def _may_hide(numbers: Array) -> bool:
    sizes = np.abs(numbers.astype(np.float64))
    return bool(((sizes > SEEN) & (sizes < NO_BOUND)).any())
