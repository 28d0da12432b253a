"""A user's own module, from a function in a file of theirs: `path/to/file.py:factory`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from export.errors import RequestError, SourceError, UntraceableError
from export.input_spec import InputSpec
from export.source import Source
from export.sources.state_dict import fit_weights, read_weights
from export.sources.user_imports import OWN_PACKAGES, UserImports


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


def expect_arguments(module: nn.Module, inputs: tuple[InputSpec, ...], where: str) -> None:
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


FACTORY_SPEC = re.compile(r"(?P<file>.+\.py):(?P<factory>[^:/\\]*)\Z", re.DOTALL)


def read_factory(text: str, inputs: tuple[InputSpec, ...], weights: str | Path | None = None) -> Source:
    """Load the user's file, call its factory, fill in the weights; an error says where their code stopped."""
    written = FACTORY_SPEC.match(text)
    if written is None or not written["factory"].isidentifier():
        raise RequestError(f"expected path/to/file.py:factory, got {text!r}")
    path, factory = Path(written["file"]), written["factory"]
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    path = path.resolve()
    folders = [path.parent, package_root(path), Path.cwd()]
    guest = UserImports(folders)
    with guest.host(), _user_errors(path, folders):
        made = _call_factory(_load_file(path), factory, path)
    if weights is not None:
        tensors = read_weights(Path(weights))
        with guest.host():
            fit_weights(made, tensors, str(weights))
    expect_ready(made, f"{path.name}:{factory}")
    expect_arguments(made, inputs, f"{path.name}:{factory}")
    with guest.host(), _user_errors(path, folders):
        module = with_user_imports(made, guest).eval().cpu()
    return Source(path.stem, "module", inputs, module=module)


def with_user_imports(module: nn.Module, guest: UserImports) -> nn.Module:
    """The module, of a class whose forward may import the user's modules whenever it is called."""
    kind = type(module)

    @functools.wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with guest.host():
            return kind.forward(self, *args, **kwargs)

    body = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    module.__class__ = type(kind.__name__, (kind,), body)
    return module


def package_root(path: Path) -> Path:
    """The folder from which a file is imported, where it lies in a package; its own otherwise."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _load_file(path: Path) -> ModuleType:
    """The user's file as a module, in its package where it has one, run anew."""
    parts = path.relative_to(package_root(path)).with_suffix("").parts
    name = ".".join(parts)
    if len(parts) > 1:
        if parts[-1] == "__init__":
            name = ".".join(parts[:-1])
        sys.modules.pop(name, None)
        return importlib.import_module(name)
    loaded = sys.modules.get(name)
    taken = loaded is not None and getattr(loaded, "__file__", None) != str(path)
    if not name.isidentifier() or (taken and name not in OWN_PACKAGES):
        name = f"turnpike_guest_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"  # the name itself is somebody else's
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{path}: expected a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # their own modules may import it in turn
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _call_factory(module: ModuleType, factory: str, path: Path) -> nn.Module:
    if not hasattr(module, factory):
        there = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
        raise SourceError(
            f"{path}: has no {factory!r}, only {', '.join(there[:8]) or 'nothing that can be called'}"
        )
    made = getattr(module, factory)
    if isinstance(made, nn.Module):
        return made
    if not callable(made):
        raise SourceError(f"{path}:{factory}: expected a function or a class, got {type(made).__name__}")
    if needed := _required_arguments(made):
        raise SourceError(
            f"{path}:{factory}: expected something that can be called without arguments, and it needs "
            f"{', '.join(needed)}: write a function that calls it with yours"
        )
    made = made()
    if not isinstance(made, nn.Module):
        raise SourceError(f"{path}:{factory}: expected a torch.nn.Module, got {type(made).__name__}")
    return made


def _required_arguments(factory: Any) -> list[str]:
    """The arguments that a call cannot do without."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (ValueError, TypeError):
        return []  # something built in; the call will tell
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in variadic]


@contextmanager
def _user_errors(path: Path, folders: list[Path]) -> Iterator[None]:
    """Whatever their code raises is one line with its file and line."""
    try:
        yield
    except SourceError:
        raise
    except SyntaxError as error:
        raise SourceError(
            f"{error.filename or path}:{error.lineno}: {type(error).__name__}: {error.msg}"
        ) from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [
            one for one in frames if any(Path(one.filename).is_relative_to(place) for place in folders[:2])
        ]
        where = f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else str(path)
        said = " ".join(str(error).split())[:300]
        raise SourceError(f"{where}: {type(error).__name__}{': ' if said else ''}{said}") from error
