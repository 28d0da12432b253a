"""Lets modules whose forward takes one dictionary of tensors be called with a tensor for each key."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from turnpike.export.errors import UsageError
from turnpike.export.input_spec import InputSpec
from turnpike.export.sources.module.wrapped_forward import wrap_forward

DICT_NAMES = ("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict")


def with_dict_argument(module: nn.Module, inputs: tuple[InputSpec, ...], where: str) -> nn.Module:
    """The module; if its forward takes a dictionary, it gets one that makes the dictionary of tensors.

    The names of the inputs are the keys.
    """
    if not takes_dict(module):
        return module
    if not inputs:
        raise UsageError(
            f"--input: expected one for each key of the dictionary that forward of {where} takes, as in "
            "--input x:float32[batch,784]"
        )
    keys = [spec.name for spec in inputs]

    def call_with_dict(forward: Callable[..., Any], *tensors: Tensor) -> Any:
        return forward(dict(zip(keys, tensors, strict=True)))

    return wrap_forward(module, call_with_dict, same_arguments=False)


def takes_dict(module: nn.Module) -> bool:
    """Whether the first argument of forward is annotated as a dictionary, and no other is needed."""
    if "forward" in vars(module):  # set on the object, which a new class could not change
        return False
    try:
        signature = inspect.signature(module.forward, eval_str=True)
    except Exception:  # the annotations may name what is imported for type checkers alone
        signature = inspect.signature(module.forward)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.kind not in variadic]
    if not parameters or any(other.default is other.empty for other in parameters[1:]):
        return False
    first = parameters[0]
    kind = typing.get_origin(first.annotation) or first.annotation
    if isinstance(kind, str):
        return kind.partition("[")[0].rpartition(".")[2].strip() in DICT_NAMES
    return isinstance(kind, type) and issubclass(kind, Mapping)
