"""A module's forward: that it can be called, and with which arguments."""

from __future__ import annotations

import inspect

import torch
from torch import nn

from export.errors import RequestError, SourceError, UntraceableError
from export.signature import Input


def expect_ready(module: nn.Module, where: str) -> None:
    """Stop unless the module has a forward in Python, and numbers in all of its tensors."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UntraceableError(
            f"{where}: a TorchScript module has no Python to trace: give the module that it was made of"
        )
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise SourceError(f"{where}: {type(module).__name__} has no forward")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise SourceError(
                f"{where}: {name} has no shape before the first call: give lazy layers their sizes"
            )
        if tensor.is_meta:
            raise SourceError(f"{where}: {name} is on the meta device and has no values: load its weights")


def expect_arguments(module: nn.Module, inputs: tuple[Input, ...], where: str) -> None:
    """Stop with a RequestError unless forward can be called with one argument per input."""
    signature = inspect.signature(module.forward)
    parameters = signature.parameters.values()
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in positional)
    most = None if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(positional)
    bare = [one.replace(annotation=one.empty) for one in parameters]
    called = f"forward{signature.replace(parameters=bare, return_annotation=signature.empty)}"
    if named := [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]:
        raise RequestError(
            f"{where}: {called} cannot be called without the keyword {named[0]!r}: give it a default"
        )
    if not inputs:
        names = [one.name for one in positional[: max(1, least)]] or ["x"]
        example = " ".join(f"--input {name}:float32[batch,784]" for name in names)
        raise RequestError(f"--input: expected one for each argument of {called}, as in {example}")
    if len(inputs) < least or (most is not None and len(inputs) > most):
        wanted = f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
        raise RequestError(
            f"--input: expected {wanted}, one for each argument of {called}, got {len(inputs)}"
        )
