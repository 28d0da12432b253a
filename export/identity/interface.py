"""Compares the interface of a graph with that of one that was exported here: names, order, dtypes and shapes.

A run matches inputs and outputs by their position, and a service by their names.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import onnx_ir as ir

from turnpike.export.identity.decision import Decision, Verdict


def interface_difference(trusted: ir.Model, model: ir.Model, hidden: Container[str]) -> Decision | None:
    """The decision if a caller would notice the difference, or None.

    `hidden` has the names of outputs that are matched by name, so that their order is free.
    """
    expected, actual = (_interface(graph, hidden) for graph in (trusted.graph, model.graph))
    for what, values in expected.items():
        if (difference := _first_difference(values, actual[what])) is not None:
            return Decision(Verdict.DIFFERENT, different=(f"{what}{difference}",))
    for wanted, lever in zip(expected["levers"], actual["levers"], strict=True):
        if _default(wanted) != _default(lever):
            return Decision(Verdict.DIFFERENT, different=(f"the default of the lever {lever.name}",))
    for wanted, value in zip(expected["inputs"], actual["inputs"], strict=True):
        if not _is_as_free(wanted, value):
            reason = f"the input {value.name} has the shape {value.shape}, expected {wanted.shape}"
            return Decision(Verdict.NOT_DECIDED, reason=reason)
    return None


def _interface(graph: ir.Graph, hidden: Container[str]) -> dict[str, list[ir.Value]]:
    by_name = sorted(graph.inputs, key=lambda value: str(value.name))
    outputs_by_name = sorted(graph.outputs, key=lambda value: str(value.name))
    return {
        "inputs": [value for value in graph.inputs if value.name not in graph.initializers],
        "levers": [value for value in by_name if value.name in graph.initializers],
        "outputs": [value for value in graph.outputs if value.name not in hidden],
        "hidden outputs": [value for value in outputs_by_name if value.name in hidden],
    }


def _first_difference(expected: Sequence[ir.Value], actual: Sequence[ir.Value]) -> str | None:
    before, after = ([f"{value.name} ({value.dtype})" for value in values] for values in (expected, actual))
    for place in range(max(len(before), len(after))):
        wanted, got = (names[place] if place < len(names) else "none" for names in (before, after))
        if wanted != got:
            return f"[{place}]: expected {wanted}, got {got}"
    return None


def _default(lever: ir.Value) -> bytes | None:
    return None if lever.const_value is None else lever.const_value.tobytes()


def _is_as_free(trusted: ir.Value, value: ir.Value) -> bool:
    """Whether a graph takes every size that the trusted one takes."""
    if trusted.shape is None or value.shape is None:
        return value.shape is None
    return len(trusted.shape) == len(value.shape) and all(
        not isinstance(size, int) or size == expected
        for size, expected in zip(value.shape, trusted.shape, strict=True)
    )
