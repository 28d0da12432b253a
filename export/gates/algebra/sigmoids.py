"""Recognizes sigmoids, however they are written: Sigmoid, (1 + tanh(x)) / 2, 1 / (1 + exp(-x)), clips.

A softmax counts as well, since two gates may be its parts. `match_sigmoid` takes a value between 0 and 1 and
finds its logit: the value that the sigmoid is applied to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx_ir as ir

from turnpike.export.gates.graph.nodes import (
    constant_scalar,
    first_input,
    is_all_ones,
    is_pass_through,
    present_inputs,
)

SIGMOID_OPS = frozenset({"Sigmoid", "HardSigmoid", "Softmax"})


class SigmoidMatch(NamedTuple):
    """The logit of a sigmoid and its slope: 1 for sigmoid(x), 2 for sigmoid(2 x), -1 for 1 - sigmoid(x).

    For clipped lines only the sign of the slope counts: it is 1 or -1.
    """

    logit: ir.Value
    slope: float


class Scaled(NamedTuple):
    """A value and the number by which it is multiplied."""

    value: ir.Value
    factor: float


class Line(NamedTuple):
    """factor * value + offset."""

    value: ir.Value
    factor: float
    offset: float


def match_sigmoid(value: ir.Value) -> SigmoidMatch | None:
    """The logit of a value between 0 and 1; None if the value is no sigmoid.

    A clipped line, as in clamp(0.2 x + 0.5, 0, 1), counts as a sigmoid of x.
    """
    inner, factor = linear_source(value)
    node = inner.producer()
    if node is None or not node.inputs:
        return None
    sign = 1.0 if factor > 0 else -1.0
    if node.op_type == "Exp":
        match = _match_exponential(first_input(node))
        return None if match is None else SigmoidMatch(match.logit, sign * match.slope)
    if node.op_type in SIGMOID_OPS:
        return SigmoidMatch(first_input(node), sign)
    if node.op_type == "Tanh":
        # (1 + tanh(x)) / 2 = sigmoid(2 x)
        return SigmoidMatch(first_input(node), 2 * sign)
    if (line := _clip_source(node)) is not None:
        # a lower and an upper bound may be two nodes, with arithmetic between and below them
        while line is not None:
            inner, factor = linear_source(line)
            sign = sign if factor > 0 else -sign
            node = inner.producer()
            line = None if node is None else _clip_source(node)
        # a sigmoid may be clipped, too, so that it never closes
        clipped = match_sigmoid(inner)
        return (
            SigmoidMatch(inner, sign)
            if clipped is None
            else SigmoidMatch(clipped.logit, sign * clipped.slope)
        )
    # 1 / (1 + exp(u)) = sigmoid(-u)
    exponent = _logistic_exponent(node)
    return None if exponent is None else SigmoidMatch(exponent, -sign)


def are_complements(first: ir.Value, second: ir.Value) -> bool:
    """Whether two values are sigmoid(u) and sigmoid(-u), which is 1 - sigmoid(u)."""
    a, b = match_sigmoid(first), match_sigmoid(second)
    if a is None or b is None or a.slope != b.slope:
        return False
    return any(
        node is not None and match_scaling(node) == (logit, -1.0)
        for logit, node in ((a.logit, b.logit.producer()), (b.logit, a.logit.producer()))
    )


def intermediate_values(gate: ir.Value, logit: ir.Value) -> set[ir.Value]:
    """The values on the way from a logit to its gate, without the two themselves."""
    between: set[ir.Value] = set()
    value = gate
    while value is not logit and (node := value.producer()) is not None:
        between.add(value)
        # all other inputs on this way are constant numbers
        value = next(source for source in present_inputs(node) if constant_scalar(source) is None)
    return between - {gate}


def lines_of(value: ir.Value) -> Iterator[Line]:
    """Every way to write a value as a x + b with constant numbers a and b, from the last x back."""
    factor, offset = 1.0, 0.0
    while (node := value.producer()) is not None:
        match node.op_type, present_inputs(node):
            case "Add" | "Sub" as op, [a, b]:
                first, second = _number(a), _number(b)
                sign = -1.0 if op == "Sub" else 1.0
                if second is not None:
                    value, offset = a, offset + factor * sign * second
                elif first is not None:
                    value, offset, factor = b, offset + factor * first, factor * sign
                else:
                    return
            case _ if is_pass_through(node):
                value = first_input(node)
            case _ if (scaled := match_scaling(node)) is not None and scaled.factor:
                value, factor = scaled.value, factor * scaled.factor
            case _:
                return
        yield Line(value, factor, offset)


def _number(value: ir.Value) -> float | None:
    """The number that each element of a constant is."""
    number = constant_scalar(value)
    return 1.0 if number is None and is_all_ones(value) else number


def linear_source(value: ir.Value) -> Scaled:
    """The x and the a of a value a x + b, where a and b are constant numbers."""
    factor = 1.0
    for line in lines_of(value):
        value, factor = line.value, line.factor
    return Scaled(value, factor)


def match_scaling(node: ir.Node) -> Scaled | None:
    """The x and the a of a node that computes a x with a constant number a; None for other nodes."""
    if node.op_type == "Neg":
        return Scaled(first_input(node), -1.0)
    if node.op_type not in {"Mul", "Div"}:
        return None
    a, b = node.inputs
    if a is not None and (number := constant_scalar(b)):
        return Scaled(a, number if node.op_type == "Mul" else 1 / number)
    if b is not None and node.op_type == "Mul" and (number := constant_scalar(a)) is not None:
        return Scaled(b, number)
    return None


def match_softplus(node: ir.Node) -> ir.Value | None:
    """The x of a node that computes softplus(x).

    PyTorch chooses x itself where it is so large that softplus(x) is the same.
    """
    if node.op_type == "Softplus":
        return first_input(node)
    match node.op_type, [value.producer() for value in present_inputs(node)]:
        case "Where", [ir.Node(op_type="Greater") as condition, _, ir.Node() as small]:
            inner, factor = linear_source(small.outputs[0])
            softplus, large = inner.producer(), present_inputs(node)[1]
            if softplus is not None and softplus.op_type == "Softplus" and factor == 1.0:
                compared = {linear_source(first_input(condition)), linear_source(first_input(softplus))}
                return large if compared == {linear_source(large)} else None
    return None


def _match_exponential(exponent: ir.Value) -> SigmoidMatch | None:
    """The sigmoid that is the exponential of this value, as in code that computes with logarithms."""
    inner, factor = linear_source(exponent)
    node = inner.producer()
    if node is None:
        return None
    if node.op_type == "LogSoftmax" and inner is exponent:
        return SigmoidMatch(first_input(node), 1.0)
    if node.op_type == "Log" and inner is exponent:
        # exp(log(sigmoid(x)))
        return match_sigmoid(first_input(node))
    if (source := match_softplus(node)) is not None and factor == -1.0:
        # exp(-softplus(x)) = sigmoid(-x)
        return SigmoidMatch(source, -1.0)
    return None


def _clip_source(node: ir.Node) -> ir.Value | None:
    """The value that a node bounds by a constant number: that of Clip, max(x, number) or min(x, number)."""
    if node.op_type == "Clip":
        return first_input(node)
    if node.op_type in {"Max", "Min"}:
        computed = [value for value in present_inputs(node) if constant_scalar(value) is None]
        return computed[0] if len(computed) == 1 else None
    return None


def _logistic_exponent(node: ir.Node) -> ir.Value | None:
    """The u of 1 / (1 + exp(u))."""
    if node.op_type == "Div" and constant_scalar(node.inputs[0]) is not None:
        denominator = node.inputs[1]
    elif node.op_type == "Reciprocal" or (node.op_type == "Pow" and constant_scalar(node.inputs[1]) == -1.0):
        denominator = node.inputs[0]
    else:
        return None
    exponential = None if denominator is None else linear_source(denominator).value.producer()
    if exponential is None or exponential.op_type != "Exp":
        return None
    return first_input(exponential)
