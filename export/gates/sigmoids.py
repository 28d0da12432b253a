"""The ways in which a number is squashed between 0 and 1: sigmoids, however they are written."""

from __future__ import annotations

import onnx_ir as ir

from export.gates.graph_view import constant_scalar, first_input, is_pass_through, present_inputs

SIGMOID_OPS = frozenset({"Sigmoid", "HardSigmoid", "Softmax"})


def match_sigmoid(value: ir.Value) -> tuple[ir.Value, float] | None:
    """What a value between 0 and 1 is made of, and how steeply: a sigmoid's steepness is 1, falling it is -1.

    A clipped line is taken for a sigmoid of what comes before the line.
    """
    inner, slope = linear_source(value)
    node = inner.producer()
    if node is None or not node.inputs:
        return None
    way = 1.0 if slope > 0 else -1.0
    if node.op_type == "Exp":
        # of the logarithm of a sigmoid, as code that reckons in logarithms has it
        log = first_input(node).producer()
        return match_sigmoid(first_input(log)) if log is not None and log.op_type == "Log" else None
    if node.op_type in SIGMOID_OPS:
        return first_input(node), way
    if node.op_type == "Tanh":
        # (1 + tanh(x)) / 2 is the sigmoid of 2 x
        return first_input(node), 2 * way
    if (line := _clip_source(node)) is not None:
        while line is not None:
            inner, slope = linear_source(line)
            way = way if slope > 0 else -way
            node = inner.producer()
            line = None if node is None else _clip_source(node)
        return inner, way
    exponent = _logistic_exponent(node)
    return None if exponent is None else (exponent, -way)


def are_complements(one: ir.Value, other: ir.Value) -> bool:
    """Whether two sigmoids are one number and 1 minus it: those of u and of -u."""
    a, b = match_sigmoid(one), match_sigmoid(other)
    if a is None or b is None or a[1] != b[1]:
        return False
    return any(
        node is not None and match_scaling(node) == (positive, -1.0)
        for positive, node in ((a[0], b[0].producer()), (b[0], a[0].producer()))
    )


def intermediate_values(gate: ir.Value, source: ir.Value) -> set[ir.Value]:
    """The values on the way from what is squashed to the gate, those two left out."""
    found: set[ir.Value] = set()
    value = gate
    while value is not source and (node := value.producer()) is not None:
        found.add(value)
        # all else that a squash takes are numbers
        value = next(one for one in present_inputs(node) if constant_scalar(one) is None)
    return found - {gate}


def linear_source(value: ir.Value) -> tuple[ir.Value, float]:
    """The value that this is a multiple of, plus a number; and how many times it is counted."""
    slope = 1.0
    while (node := value.producer()) is not None:
        if is_pass_through(node):
            value = first_input(node)
        elif node.op_type in {"Add", "Sub"}:
            a, b = node.inputs
            if a is not None and constant_scalar(b) is not None:
                value = a
            elif b is not None and constant_scalar(a) is not None:
                value, slope = b, slope * (-1.0 if node.op_type == "Sub" else 1.0)
            else:
                break
        elif (found := match_scaling(node)) is not None and found[1]:
            value, slope = found[0], slope * found[1]
        else:
            break
    return value, slope


def match_scaling(node: ir.Node) -> tuple[ir.Value, float] | None:
    """What a node multiplies by a number, and the number."""
    if node.op_type == "Neg":
        return first_input(node), -1.0
    if node.op_type not in {"Mul", "Div"}:
        return None
    a, b = node.inputs
    if a is not None and (number := constant_scalar(b)):
        return a, number if node.op_type == "Mul" else 1 / number
    if b is not None and node.op_type == "Mul" and (number := constant_scalar(a)) is not None:
        return b, number
    return None


def _clip_source(node: ir.Node) -> ir.Value | None:
    """What a node cuts off above or below a number."""
    if node.op_type == "Clip":
        return first_input(node)
    if node.op_type in {"Max", "Min"}:
        free = [value for value in present_inputs(node) if constant_scalar(value) is None]
        return free[0] if len(free) == 1 else None
    return None


def _logistic_exponent(node: ir.Node) -> ir.Value | None:
    """The u of 1 / (1 + exp(u))."""
    if node.op_type == "Div" and constant_scalar(node.inputs[0]) is not None:
        below = node.inputs[1]
    elif node.op_type == "Reciprocal":
        below = node.inputs[0]
    else:
        return None
    exponential = None if below is None else linear_source(below)[0].producer()
    if exponential is None or exponential.op_type != "Exp":
        return None
    return first_input(exponential)
