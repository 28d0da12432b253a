"""Spares torch.onnx work that does not change what it writes, which is half of its time in small networks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

import torch
from onnxscript.values import TracedOnnxFunction
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

from turnpike.export.module_copy import copy_program
from turnpike.export.trace.untraceable import all_nodes

# operators that torch.onnx leaves out
ASSERTIONS = frozenset(
    (torch.ops.aten._assert_tensor_metadata.default, torch.ops.aten._assert_scalar.default)
)
# torch.onnx writes an Einsum for these, and a Transpose for what they are replaced by
SWAPPED_AXES = frozenset((torch.ops.aten.mT.default, torch.ops.aten.mH.default))
# the property that parses a function
PARSED_FUNCTION = vars(TracedOnnxFunction)["function_ir"]


@contextlib.contextmanager
def less_work() -> Iterator[None]:
    """While the block runs, let torch.onnx parse no function, and trace a program again only if it must.

    It would parse the source of all 497 functions that write an operator, and use only their domains. And it
    would trace each program again, to replace the operators that it cannot write.
    """
    decompose = _fx_passes.decompose_with_registry

    def decompose_if_needed(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
        if not all(can_be_written(node, registry) for node in all_nodes(program)):
            return decompose(program, registry)
        return copy_program(program)  # torch.onnx adds nodes to what it gets

    with (
        patch.object(TracedOnnxFunction, "function_ir", property(UnparsedFunction)),
        patch.object(_fx_passes, "decompose_with_registry", decompose_if_needed),
    ):
        yield


def can_be_written(node: fx.Node, registry: ONNXRegistry) -> bool:
    """Whether a node computes a new tensor, by an operator that torch.onnx has a function for."""
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr", "output")
    if node.target in ASSERTIONS:
        return True
    if node.target in SWAPPED_AXES or (
        isinstance(node.target, OpOverload) and node.target._schema.is_mutable
    ):
        return False
    return registry.is_registered(cast(OpOverload, node.target))


class UnparsedFunction:
    """The parsed form of a function of onnxscript. It is parsed when more than its domain is needed."""

    def __init__(self, function: TracedOnnxFunction) -> None:
        self._function = function
        self.domain = function.opset.domain

    def __getattr__(self, name: str) -> Any:
        return getattr(PARSED_FUNCTION.__get__(self._function), name)
