"""Constants that torch.onnx computed while it exported: which nodes of the program they stand for.

The exporter's sines and powers are not PyTorch's to the bit. A constant within `MAX_ULP` is taken for that of
the program, and the result of the decision lists it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram

from turnpike.export.identity.algebra.arithmetic.terms import Array
from turnpike.export.identity.aten.run_program import program_weights, to_numpy

# units in the last place of the largest number
MAX_ULP = 2.0


@dataclass(frozen=True)
class FoldedConstant:
    """A node that needs no input, as the exporter computed it, and its distance from PyTorch's own value."""

    node: str
    array: Array
    ulp: float


def folded_constants(program: ExportedProgram, initializers: Mapping[str, Array]) -> Iterator[FoldedConstant]:
    """The nodes that need no input: all integers, and floats that are about their initializer."""
    values: dict[fx.Node, Any] = {}
    weights = dict(program_weights(program))
    with torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in weights:
                values[node] = weights[node.name]
                continue
            if node.op != "call_function" or any(operand not in values for operand in node.all_input_nodes):
                continue
            arguments, named = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            try:
                values[node] = node.target(*arguments, **named)
            except Exception:  # noqa: S112 - an operator on sizes, or one that this build does not have
                continue
            array = initializers.get(node.name)
            if not isinstance(values[node], torch.Tensor):
                continue
            if not values[node].is_floating_point() and not values[node].is_complex():
                # indices that were computed in floats, exactly as PyTorch computes them
                yield FoldedConstant(node.name, to_numpy(values[node]), 0.0)
            elif array is not None:
                ulp = ulp_distance(to_numpy(values[node]), array)
                if ulp <= MAX_ULP:
                    yield FoldedConstant(node.name, array, ulp)


def ulp_distance(expected: Array, actual: Array) -> float:
    """The largest difference, in units in the last place of the largest number; infinite for other shapes."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return math.inf
    if expected.tobytes() == actual.tobytes():
        return 0.0
    if expected.dtype.kind != "f" or not (np.isfinite(expected).all() and np.isfinite(actual).all()):
        return math.inf
    # a sign is no rounding: the prototype's one fault that passed
    if (np.signbit(expected) != np.signbit(actual)).any():
        return math.inf
    difference = np.abs(expected.astype(np.float64) - actual).max()
    return float(difference / np.spacing(np.abs(expected).max()))
