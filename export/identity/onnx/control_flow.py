"""Operators of ONNX that run graphs of their own: If, Loop and Scan, step by step."""

from __future__ import annotations

import math

import numpy as np

from turnpike.export.identity.algebra.arithmetic.terms import (
    Sizes,
    Term,
    UndecidedError,
    Value,
    known,
    known_integers,
    shape_of,
)
from turnpike.export.identity.algebra.joining import stack
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, integers

table = OperatorTable()


@table.operators("If")
def condition(call: NodeCall, chosen: Value) -> list[Value]:
    """Both branches run if the condition depends on the input or its sizes: each result is one of either."""
    if not isinstance(chosen, Term | Sizes):
        branch = "then_branch" if np.asarray(chosen).all() else "else_branch"
        return call.run_graph(call.get(branch), [])
    scalar = call.algebra.move(chosen, lambda data: data.reshape(()))
    branches = [call.run_graph(call.get(name), []) for name in ("then_branch", "else_branch")]
    return [call.algebra.either_branch(scalar, a, b) for a, b in zip(*branches, strict=True)]


@table.operators("Loop")
def loop(call: NodeCall, count: Value | None, going: Value | None, *states: Value) -> list[Value]:
    body = call.get("body")
    limit = math.inf if count is None else integers(count, "the number of steps of a Loop")[0]
    goes_on = going is None or bool(known(going, "the condition of a Loop").all())
    carried, collected = list(states), [list[Value]() for _ in body.outputs[1 + len(states) :]]
    step = 0
    while goes_on and step < limit:
        number = call.algebra.of_this_run("position", np.array(step, np.int64))
        more, *results = call.run_graph(body, [number, np.array(True), *carried])
        goes_on = bool(known(more, "the condition of a Loop").all())
        carried = _carried(call, carried, results)
        for values, value in zip(collected, results[len(states) :], strict=True):
            values.append(value)
        step += 1
    if not step and collected:
        raise UndecidedError("a Loop without a step")
    return [*carried, *(stack(call.algebra, values, 0) for values in collected)]


def _carried(call: NodeCall, before: list[Value], results: list[Value]) -> list[Value]:
    """The states after a step. Integers that change may count steps, of which other sizes have more."""
    return [
        call.algebra.of_this_run("state", after[0])
        if (after := known_integers(result)) is not None and not np.array_equal(after[0], np.asarray(state))
        else result
        for state, result in zip(before, results, strict=False)
    ]


@table.operators("Scan")
def scan(call: NodeCall, *inputs: Value) -> list[Value]:
    algebra, body, count = call.algebra, call.get("body"), call.get("num_scan_inputs")
    states, sequences = list(inputs[:-count]), inputs[-count:]
    collected = [list[Value]() for _ in body.outputs[len(states) :]]
    in_axes = call.get("scan_input_axes", [0] * count)
    in_reversed = call.get("scan_input_directions", [0] * count)
    out_axes = call.get("scan_output_axes", [0] * len(collected))
    out_reversed = call.get("scan_output_directions", [0] * len(collected))
    length = shape_of(sequences[0])[in_axes[0]]
    for step in range(length):
        parts = [
            algebra.move(
                value, lambda data, at=length - 1 - step if back else step, axis=axis: data.take(at, axis)
            )
            for value, axis, back in zip(sequences, in_axes, in_reversed, strict=True)
        ]
        results = call.run_graph(body, [*states, *parts])
        states = _carried(call, states, results)
        for values, value in zip(collected, results[len(states) :], strict=True):
            values.append(value)
    joined = [
        stack(algebra, values[::-1] if back else values, axis)
        for values, axis, back in zip(collected, out_axes, out_reversed, strict=True)
    ]
    return [*states, *joined]
