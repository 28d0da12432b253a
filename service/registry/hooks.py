"""Hooks: functions of an application that run before and after a model, and the tensors that they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any

from turnpike.common.datatypes import DATATYPES
from turnpike.common.similar_names import similar_name
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import ModelFileError, SettingError
from turnpike.service.inference_types import Array

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Hooks:
    """What to do with the rows of a model before and after its network runs.

    Both functions are called once for each run, with the rows of all requests that share it, in the thread
    of the run. The arrays of rows are read-only. Each row of a result must depend on the same row only.

    Args:
        before: Gets the rows by the names of the inputs, and returns the inputs of the network.
        after: Gets the rows as `before` got them, and the public outputs of the network. Returns these
            outputs, which it may change, and those in `outputs`. It does not run for gates alone.
        inputs: The tensors that requests send, if they are not the inputs of the network.
        outputs: The tensors that `after` adds.

    Raises:
        ValueError: These hooks fit no model.
    """

    before: Callable[[Arrays], Arrays] | None = None
    after: Callable[[Arrays, Arrays], Arrays] | None = None
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        _expect_function("before", self.before, ("rows",))
        _expect_function("after", self.after, ("rows", "outputs"))
        if self.inputs is not None:
            if self.before is None:
                raise ValueError("inputs: expected before, which makes the inputs of the network of them")
            object.__setattr__(self, "inputs", _checked("inputs", self.inputs))
            if not self.inputs:
                raise ValueError("inputs: expected at least one tensor, got none")
        object.__setattr__(self, "outputs", _checked("outputs", self.outputs))
        if self.outputs and self.after is None:
            raise ValueError("outputs: expected after, which adds them")

    def signature(self, network: Signature, levers: Iterable[str], where: str) -> Signature:
        """The tensors that requests send and get, if the network has this signature.

        Args:
            network: The network's own tensors.
            levers: The names of the network's tensors that may be overridden.
            where: Names the model in the error.

        Raises:
            ModelFileError: The hooks do not fit the network.
        """
        expect_rows_first(self.inputs or (), network, where)
        expect_rows_first(self.outputs, network, where)
        if taken := [tensor.name for tensor in self.inputs or () if tensor.name in set(levers)]:
            raise _misfit(where, f"inputs: expected names that no weight has, got {taken[0]!r}")
        present = network.outputs.keys() | network.hidden.keys()
        if taken := [tensor.name for tensor in self.outputs if tensor.name in present]:
            raise _misfit(where, f"outputs: expected names that the network does not have, got {taken[0]!r}")

        splittable = network.splittable
        if self.after is not None:
            # `after` gets all public outputs, so it can share a run only if each of them can be cut
            if network.batch is not None and splittable.issuperset(network.outputs):
                splittable |= {tensor.name for tensor in self.outputs}
            else:
                splittable -= network.outputs.keys()
        signature = replace(
            network,
            outputs={**network.outputs, **{tensor.name: tensor for tensor in self.outputs}},
            splittable=splittable,
        )
        if self.inputs is None:
            return signature
        inputs = {tensor.name: tensor for tensor in self.inputs}
        return replace(signature, inputs=inputs, features=(), columns=(), text=None, picture=None)

    def manifest(self, manifest: Manifest | None) -> Manifest | None:
        """The manifest without what it says about the inputs of requests, if these are others."""
        if manifest is None or self.inputs is None:
            return manifest
        others = {"samples": (), "features": (), "ranges": (), "picture": None, "text": None, "alphabet": ""}
        return manifest.model_copy(update=others)


def expect_rows_first(tensors: Iterable[Tensor], network: Signature, where: str) -> None:
    """Raise ModelFileError unless the first dimension of the tensors is that of the network's rows."""
    for tensor in tensors:
        if network.batch is not None and tensor.dims[:1] != (network.batch,):
            expected = f"the first dimension {network.batch!r}, as in the network"
            raise _misfit(where, f"{tensor.name}: expected {expected}, got {tensor}")


def checked_hooks(hooks: Any) -> dict[str, Hooks]:
    """The argument `hooks` of an application: hooks by the names of models.

    Raises:
        SettingError: It is something else.
    """
    example = 'such as {"digits-10": turnpike.Hooks(...)}'
    if hooks is None:
        return {}
    if not isinstance(hooks, Mapping):
        raise SettingError(f"hooks: expected a dict by the names of models, {example}, got {_kind(hooks)}")
    for name, value in hooks.items():
        if not isinstance(name, str):
            raise SettingError(f"hooks: expected names of models, {example}, got {name!r}")
        if not isinstance(value, Hooks):
            raise SettingError(f"hooks: {name}: expected turnpike.Hooks, {example}, got {_kind(value)}")
    return dict(hooks)


def unknown_model(name: str, known: Iterable[str]) -> str:
    """What to say of hooks for a model that is not among those that are known."""
    names = sorted(known)
    similar = similar_name(name, names)
    hint = f"; did you mean {similar!r}?" if similar else ""
    return f"hooks: expected the name of a model ({', '.join(names) or 'there is none'}), got {name!r}{hint}"


def _expect_function(field: str, function: Any, parameters: tuple[str, ...]) -> None:
    """Raise ValueError unless a hook can be called with these arguments, in a thread."""
    if function is None:
        return
    is_coroutine = iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    if not callable(function) or is_coroutine:
        kind = "a coroutine function" if is_coroutine else repr(function)
        raise ValueError(f"{field}: expected a function, which runs in a thread, got {kind}")
    try:
        has = signature(function)
    except (TypeError, ValueError):
        # some functions in C do not say
        return
    try:
        has.bind(*parameters)
    except TypeError as error:
        raise ValueError(
            f"{field}: expected a function with the parameters ({', '.join(parameters)}), "
            f"got {getattr(function, '__name__', type(function).__name__)}{has}"
        ) from error


def _kind(value: Any) -> str:
    return f"the function {value.__name__}" if isfunction(value) else f"an object of {type(value).__name__}"


def _checked(field: str, tensors: Any) -> tuple[Tensor, ...]:
    """The tensors as a tuple; raises ValueError for a wrong one."""
    if not isinstance(tensors, list | tuple):
        raise ValueError(  # noqa: TRY004, as for a wrong value
            f"{field}: expected a tuple of tensors, such as "
            f'(turnpike.Tensor("id", "int64", ("batch",)),), got {tensors!r}'
        )
    checked: list[Tensor] = []
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{field}: expected tensors, got {tensor!r}")  # noqa: TRY004, as for a wrong value
        if not isinstance(tensor.name, str) or not tensor.name:
            raise ValueError(f"{field}: expected names that are strings, got {tensor.name!r}")
        if not isinstance(tensor.dtype, str) or tensor.dtype not in DATATYPES:
            raise ValueError(
                f"{field}: {tensor.name}: expected a dtype of {', '.join(DATATYPES)}, got {tensor.dtype!r}"
            )
        if not isinstance(tensor.dims, list | tuple) or not all(map(_is_dim, tensor.dims)):
            raise ValueError(
                f"{field}: {tensor.name}: expected dims of names and numbers, such as ('batch', 3), "
                f"got {tensor.dims!r}"
            )
        checked.append(replace(tensor, dims=tuple(tensor.dims)))
    names = [tensor.name for tensor in checked]
    if len(set(names)) < len(names):
        raise ValueError(f"{field}: expected each name once, got {', '.join(names)}")
    return tuple(checked)


def _is_dim(dim: Any) -> bool:
    return (type(dim) is int and dim >= 0) or (isinstance(dim, str) and bool(dim))


def _misfit(where: str, problem: str) -> ModelFileError:
    return ModelFileError(f"{where}: hooks: {problem}", "its hooks do not fit its network")
