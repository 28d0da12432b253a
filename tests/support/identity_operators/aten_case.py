"""A case of ATen operators: a network with inputs, exported once, and what PyTorch returns in float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tests.support.identity_operators.runs import Array, Interpreters

# Programs have literals in float32 where the reference has float64: 0.1 differs by 1.5e-8 of itself.
TOLERANCE = 1e-6
UNEVEN_PADDING = "Using padding='same' with even kernel lengths"
IGNORED_WARNINGS = (
    UNEVEN_PADDING,
    "The tensor attributes .*_flat_weights",
    ".*isinstance.treespec, LeafSpec",
)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


@contextmanager
def _double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _writes_in_place(program: ExportedProgram) -> bool:
    targets = {str(node.target) for node in program.graph.nodes}
    return any("_." in target for target in targets - {"aten.detach_.default"})


@dataclass
class AtenCase:
    """A network in float32; the reference is its copy in float64, whose weights are the same numbers.

    Attributes:
        name: What the case runs.
        network: A module or a function.
        inputs: Tensors, of float32 where they are floats.
        dynamic: Whether the first axis of each input has no fixed size.
    """

    name: str
    network: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    dynamic: bool = False

    @cached_property
    def _module(self) -> nn.Module:
        module = self.network if isinstance(self.network, nn.Module) else _Function(self.network)
        return module.eval()

    @cached_property
    def program(self) -> ExportedProgram:
        axes = tuple({0: torch.export.Dim.DYNAMIC} for _ in self.inputs) if self.dynamic else None
        shapes = None if axes is None else ((axes,) if isinstance(self._module, _Function) else axes)
        with warnings.catch_warnings():
            for message in IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", message)
            program = torch.export.export(self._module, self.inputs, dynamic_shapes=shapes, strict=False)
            # without writes in place, as torch.onnx has it
            return program.run_decompositions({}) if _writes_in_place(program) else program

    @cached_property
    def expected(self) -> list[Array]:
        module = copy.deepcopy(self._module).double()
        inputs = [tensor.double() if tensor.is_floating_point() else tensor for tensor in self.inputs]
        with _double_precision(), torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", UNEVEN_PADDING)
            leaves = pytree.tree_leaves(module(*inputs))
        return [leaf.numpy() for leaf in leaves if isinstance(leaf, Tensor)]

    def run(self, interpreters: Interpreters, *, normalizes: bool = True) -> Any:
        algebra = interpreters.algebra(interpreters.reals(), normalizes=normalizes)
        arrays = [tensor.numpy() for tensor in self.inputs]
        return interpreters.run_program(self.program, algebra, interpreters.inputs(arrays)), algebra

    def difference(self, interpreters: Interpreters) -> str | None:
        """How the interpreter's outputs differ from PyTorch's; None if they do not."""
        for normalizes in (True, False):
            run, algebra = self.run(interpreters, normalizes=normalizes)
            found = interpreters.difference(self.expected, run.outputs, algebra, TOLERANCE)
            if found is not None:
                return found if normalizes else f"without normal forms: {found}"
        return None


class AtenCases(dict[str, AtenCase]):
    """Cases by name."""

    def add(self, name: str, network: Callable[..., Any], *inputs: Tensor, dynamic: bool = False) -> None:
        assert name not in self, name
        self[name] = AtenCase(name, network, inputs, dynamic)


_generator = torch.Generator().manual_seed(0)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
    return torch.rand(shape, generator=_generator) * (high - low) + low


def integers(*shape: int, low: int = 0, high: int = 5) -> Tensor:
    return torch.randint(low, high, shape, generator=_generator)


def booleans(*shape: int) -> Tensor:
    return torch.rand(shape, generator=_generator) < 0.5
