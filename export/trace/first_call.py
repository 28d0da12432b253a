"""Calls a module once before it is traced, and explains what is wrong with its dtypes and its argument."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from turnpike.export.errors import SourceError, UsageError
from turnpike.export.input_spec import BFLOAT16_REMEDY, DTYPES, InputSpec
from turnpike.export.module_copy import copy_module


def call_once(module: nn.Module, args: tuple[Tensor, ...], inputs: tuple[InputSpec, ...]) -> None:
    """Call a copy of the module. Other errors than those of dtypes and dictionaries are its own."""
    try:
        outputs = copy_module(module)(*args)
    except Exception as error:
        if advice := dtype_advice(module, args, inputs):
            raise advice from error
        if advice := dict_advice(module, args, inputs):
            raise advice from error
        raise
    for path, leaf in pytree.tree_flatten_with_path(outputs)[0]:
        if isinstance(leaf, int | float | complex):
            place = re.sub(r"[\[\]']+", ".", pytree.keystr(path)).strip(".")
            raise SourceError(
                f"output{f' {place}' if place else ''} is a Python number, {leaf}: return a tensor, or leave "
                "it out"
            )
        if isinstance(leaf, Tensor) and leaf.dtype == torch.bfloat16:
            raise UsageError(f"expected outputs of a dtype that NumPy has, got bfloat16: {BFLOAT16_REMEDY}")


def dtype_advice(
    module: nn.Module, args: tuple[Tensor, ...], inputs: tuple[InputSpec, ...]
) -> UsageError | SourceError | None:
    """What to do if the module runs once its parameters have the dtype of the inputs."""
    names: dict[torch.dtype, str] = {}  # of the first tensor of each dtype
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            names.setdefault(tensor.dtype, name)
    given = next(
        ((spec, arg.dtype) for spec, arg in zip(inputs, args, strict=True) if arg.is_floating_point()), None
    )
    wanted = torch.float32 if given is None else given[1]
    if names.keys() <= {wanted} or failure(copy_module(module).to(wanted), args):
        return None
    if len(names) > 1:
        found = ", ".join(f"{name} is {dtype_name(dtype)}" for dtype, name in names.items())
        return SourceError(
            f"expected parameters of one dtype, and {found}: call float() on the module, or double() if its "
            "inputs are float64"
        )
    dtype = dtype_name(next(iter(names)))
    if given is None or dtype not in DTYPES:
        return UsageError(
            f"the module's parameters are {dtype}, which its inputs cannot have: {BFLOAT16_REMEDY}"
        )
    spec = InputSpec(given[0].name, dtype, given[0].dims)
    return UsageError(
        f"--input {spec.name}: expected {dtype}, the dtype of the module's parameters, got {given[0].dtype}: "
        f"write --input {spec}, or call float() on the module"
    )


def dict_advice(
    module: nn.Module, args: tuple[Tensor, ...], inputs: tuple[InputSpec, ...]
) -> UsageError | None:
    """What to do if the module runs with a dictionary of its inputs, or only lacks other keys in it."""
    named = {spec.name: arg for spec, arg in zip(inputs, args, strict=True)}
    if len(args) != 1 or not isinstance(failure(module, (named,)), KeyError | None):
        return None
    argument = next(iter(inspect.signature(module.forward).parameters))
    return UsageError(
        f"forward takes a dictionary: write its type, as in forward(self, {argument}: dict), and give an "
        "--input for each key, under the key's name"
    )


def failure(module: nn.Module, args: tuple[Any, ...]) -> Exception | None:
    """The exception with which a copy of the module stops; None if it runs."""
    try:
        copy_module(module)(*args)
    except Exception as error:  # the user's code may raise anything
        return error
    return None


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
