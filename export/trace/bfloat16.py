"""Replaces bfloat16 by float32 in a program: onnxruntime has few operators for bfloat16, and none on a CPU.

Every bfloat16 is a float32, so parameters keep their values. Results are the same real numbers with less
rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from turnpike.export.module_copy import copy_program
from turnpike.export.trace.untraceable import all_nodes, source_location


def computes_in_bfloat16(program: ExportedProgram) -> str | None:
    """The line of the user's code that computes the first bfloat16, or "" if unknown; None without any."""
    for node in all_nodes(program):
        if node.op == "call_function" and has_bfloat16(node.meta.get("val")):
            return source_location(node)
    return None


def without_bfloat16(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program that has float32 instead; the program itself if it has no bfloat16."""
    tensors = (program.state_dict, program.constants)
    if not any(map(has_bfloat16, tensors)) and computes_in_bfloat16(program) is None:
        return program
    program = copy_program(program)
    for node in all_nodes(program):
        widen_node(node)
    weights = pytree.tree_map_only(Tensor, widened, program.state_dict)
    constants = pytree.tree_map_only(Tensor, widened, program.constants)
    signature = program.graph_signature
    return program._update(program.graph_module, signature, state_dict=weights, constants=constants)


def widen_node(node: fx.Node) -> None:
    """Let a node compute in float32 what it computes in bfloat16."""
    if node.target is torch.ops.higher_order.wrap_with_autocast and node.args[1] is torch.bfloat16:
        device, _, _, *rest = node.args
        node.args = (device, None, False, *rest)  # the second and third are the dtype, and whether it is on
    node.args, node.kwargs = pytree.tree_map_only(torch.dtype, wider, (node.args, node.kwargs))
    if "val" in node.meta:
        node.meta["val"] = pytree.tree_map_only(Tensor, widened, node.meta["val"])


def has_bfloat16(values: Any) -> bool:
    """Whether one of the tensors in a structure has this dtype."""
    return any(
        isinstance(leaf, Tensor) and leaf.dtype is torch.bfloat16 for leaf in pytree.tree_leaves(values)
    )


def widened(tensor: Tensor) -> Tensor:
    """The same tensor, or one of float32 with the values of a tensor of bfloat16."""
    if tensor.dtype is not torch.bfloat16:
        return tensor
    wide = tensor.detach().float()
    return torch.nn.Parameter(wide) if isinstance(tensor, torch.nn.Parameter) else wide


def wider(dtype: torch.dtype) -> torch.dtype:
    """Float32 for bfloat16, and any other dtype for itself."""
    return torch.float32 if dtype is torch.bfloat16 else dtype
