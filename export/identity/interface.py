"""Compares the interface of a graph with that of one that was exported here: names, order, dtypes and shapes.

A run matches inputs and outputs by their position, and a service by their names.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import onnx_ir as ir

from turnpike.export.identity.decision import Decision, Verdict


def interface_difference(trusted: ir.Model, model: ir.Model, hidden: Container[str]) -> Decision | None:
    """The decision if a caller would notice the difference, or None.

    `hidden` has the names of outputs whose order is free, because they are matched by name.
    """
    inputs = [_inputs(graph) for graph in (trusted.graph, model.graph)]
    outputs = [
        [value for value in graph.outputs if value.name not in hidden]
        for graph in (trusted.graph, model.graph)
    ]
    extra = [
        sorted((value for value in graph.outputs if value.name in hidden), key=lambda value: str(value.name))
        for graph in (trusted.graph, model.graph)
    ]
    levers = [
        sorted(
            (value for value in graph.inputs if value.name in graph.initializers), key=lambda v: str(v.name)
        )
        for graph in (trusted.graph, model.graph)
    ]
    pairs = {"inputs": inputs, "outputs": outputs, "hidden outputs": extra, "levers": levers}
    for what, (expected, actual) in pairs.items():
        before, after = _described(expected), _described(actual)
        if before != after:
            place = next(
                (number for number, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
                min(len(before), len(after)),
            )
            wanted, got = (names[place] if place < len(names) else "none" for names in (before, after))
            difference = f"{what}[{place}]: expected {wanted}, got {got}"
            return Decision(Verdict.DIFFERENT, different=(difference,))
    for wanted_value, value in zip(*levers, strict=True):
        a, b = (None if v.const_value is None else v.const_value.tobytes() for v in (wanted_value, value))
        if a != b:
            return Decision(Verdict.DIFFERENT, different=(f"the default of the lever {value.name}",))
    for wanted_value, value in zip(*inputs, strict=True):
        if not _is_as_free(wanted_value, value):
            return Decision(
                Verdict.NOT_DECIDED,
                reason=f"the input {value.name} is declared as {value.shape}, expected {wanted_value.shape}",
            )
    return None


def _inputs(graph: ir.Graph) -> list[ir.Value]:
    return [value for value in graph.inputs if value.name not in graph.initializers]


def _described(values: Sequence[ir.Value]) -> list[str]:
    return [f"{value.name} ({value.dtype})" for value in values]


def _is_as_free(trusted: ir.Value, value: ir.Value) -> bool:
    """Whether a graph takes every size that the trusted one takes."""
    if trusted.shape is None or value.shape is None:
        return value.shape is None
    return len(trusted.shape) == len(value.shape) and all(
        not isinstance(size, int) or size == expected
        for size, expected in zip(value.shape, trusted.shape, strict=True)
    )
