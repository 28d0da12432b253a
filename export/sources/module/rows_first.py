"""Moves the batch of a module to the first axis of every input and output.

The service joins requests along the first axis. Networks that take time first, as PyTorch's recurrent layers
do by default, have the batch on the second.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from turnpike.export.errors import SourceError
from turnpike.export.input_spec import InputSpec, batch_dimension
from turnpike.export.module_copy import copy_module
from turnpike.export.network import Messages, Network
from turnpike.export.sources.module.wrapped_forward import wrap_forward
from turnpike.export.trace.trace_network import TRACING_SIZES, example_tensor, uncompiled_branches


def with_rows_first(network: Network) -> Network:
    """The same network if its batch is first everywhere; else one whose module takes and gives rows first.

    A note says what was moved.
    """
    batch = batch_dimension(network.inputs)
    module = network.module
    if module is None or batch is None:
        return network
    input_axes = tuple(spec.dims.index(batch) if batch in spec.dims else 0 for spec in network.inputs)
    output_axes = find_output_axes(module, network.inputs, batch)
    if not any((*input_axes, *output_axes)):
        return network
    if "forward" in vars(module):
        raise SourceError(
            f"{type(module).__name__}: the batch cannot be moved to the first axis, because forward was "
            "assigned to the module (module.forward = ...): define it in the module's class"
        )
    inputs = tuple(
        _with_axis_first(spec, axis) for spec, axis in zip(network.inputs, input_axes, strict=True)
    )
    moved = [f"{new} instead of {old}" for new, old in zip(inputs, network.inputs, strict=True) if new != old]
    count = sum(axis > 0 for axis in output_axes)
    if count:
        moved.append(f"{'and ' if moved else ''}{count} of {len(output_axes)} outputs")
    note = f"the file has the rows first, unlike the network: {', '.join(moved)}"
    return replace(
        network,
        inputs=inputs,
        module=_moving_rows(module, input_axes, output_axes),
        input_axes=input_axes,
        output_axes=output_axes,
    ).with_messages(Messages(notes=(note,)))


def find_output_axes(module: nn.Module, inputs: tuple[InputSpec, ...], batch: str) -> tuple[int, ...]:
    """The axis of the batch in each tensor that a module returns; 0 where it has none.

    Empty if the module does not run on rows of zeros and ones: tracing will explain why.
    """
    names = dict.fromkeys(dim for spec in inputs for dim in spec.dims if isinstance(dim, str))
    sizes = dict(zip((name for name in names if name != batch), TRACING_SIZES[2:], strict=False))
    shapes: list[list[torch.Size]] = []
    counts = (5, 7)
    for rows in counts:
        args = [example_tensor(spec, sizes | {batch: rows}) for spec in inputs]
        try:
            with (
                torch.no_grad(),
                warnings.catch_warnings(action="ignore"),
                torch.random.fork_rng(devices=[]),
                uncompiled_branches(),
            ):
                leaves = pytree.tree_leaves(copy_module(module)(*args))
        except Exception:  # the user's code may raise anything
            return ()
        shapes.append([leaf.shape for leaf in leaves if isinstance(leaf, Tensor)])
    return tuple(
        next((axis for axis, pair in enumerate(zip(*both, strict=False)) if pair == counts), 0)
        for both in zip(*shapes, strict=False)
    )


def _with_axis_first(spec: InputSpec, axis: int) -> InputSpec:
    dims = list(spec.dims)
    if axis:
        dims.insert(0, dims.pop(axis))
    return replace(spec, dims=tuple(dims))


def _moving_rows(module: nn.Module, input_axes: tuple[int, ...], output_axes: tuple[int, ...]) -> nn.Module:
    """The module with a forward that moves the rows."""

    def call_with_rows_moved(forward: Callable[..., Any], *args: Tensor) -> Any:
        moved = [arg.movedim(0, axis) if axis else arg for arg, axis in zip(args, input_axes, strict=True)]
        leaves, structure = pytree.tree_flatten(forward(*moved))
        axes = iter(output_axes)
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and (axis := next(axes, 0)):
                leaves[index] = leaf.movedim(axis, 0)
        return pytree.tree_unflatten(leaves, structure)

    return wrap_forward(module, call_with_rows_moved)
