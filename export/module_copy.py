"""Copies PyTorch modules, also those that `copy.deepcopy` refuses, and programs of torch.export.

Old-style `torch.nn.utils.weight_norm` keeps the weight that it computes from its parameters on the module.
PyTorch refuses to copy such a tensor, because a copy could not be connected to its gradient.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy that shares no tensor with the module; a computed tensor has its value and no gradient."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in pytree.tree_leaves(list(vars(part).values())):
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """A program with a graph of its own, with the same names: `deepcopy` renames a node called `input`."""
    copied = copy_module(program.graph_module)
    for before, after in zip(program.graph_module.modules(), copied.modules(), strict=True):
        if isinstance(before, fx.GraphModule) and isinstance(after, fx.GraphModule):
            for node, copied_node in zip(before.graph.nodes, after.graph.nodes, strict=True):
                copied_node.name = node.name
    return program._update(copied, program.graph_signature)
