"""Loads the user's module from a function in a Python file: `path/to/file.py:factory`.

Also checks that a module, from a file or passed as an object, can be called with the inputs given.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from turnpike.export.errors import (
    SourceError,
    UntraceableError,
    UsageError,
    error_with_type,
    errors_of_option,
)
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Messages, Network
from turnpike.export.sources.module.dict_argument import with_dict_argument
from turnpike.export.sources.module.random_weights import watched_weights
from turnpike.export.sources.module.state_dict import fit_weights, read_weights
from turnpike.export.sources.module.user_imports import UserImports
from turnpike.export.sources.module.wrapped_forward import wrap_forward

# names of factories that an error lists
MAX_FACTORY_NAMES = 8

FACTORY_SPEC = re.compile(r"(?P<file>.+\.py):(?P<factory>[^:/\\]*)\Z", re.DOTALL)


def read_factory(text: str, inputs: tuple[InputSpec, ...], weights: str | Path | None = None) -> Network:
    """Load the user's file, call its factory, and load the weights into the module.

    The network has the name of the factory, since a file may have several.

    Errors of the user's code become a SourceError with the line where it stopped.
    """
    spec = FACTORY_SPEC.match(text)
    if spec is None or not spec["factory"].isidentifier():
        raise UsageError(f"expected path/to/file.py:factory, got {text!r}")
    path, factory = Path(spec["file"]), spec["factory"]
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    path = path.resolve()
    where = f"{path.name}:{factory}"
    folders = [path.parent, package_root(path), Path.cwd()]
    user_imports = UserImports(folders)
    with user_imports.active():
        with _user_errors(path, folders), watched_weights() as import_watch:
            file_module = _load_file(path)
        with _user_errors(path, folders, f"your factory {factory} failed at "), watched_weights() as watch:
            module = _call_factory(file_module, factory, path)
        if module is getattr(file_module, factory):
            # made when the file was loaded
            watch = import_watch
    messages = Messages()
    if weights is not None:
        with errors_of_option("--weights"), user_imports.active():
            read = read_weights(Path(weights))
            messages = read.messages + fit_weights(module, read.tensors, str(weights))
    expect_ready(module, where)
    module = with_dict_argument(module, inputs, where)
    expect_arguments(module, inputs, where)
    with user_imports.active(), _user_errors(path, folders):
        module = with_user_imports(module, user_imports).eval().cpu()
    is_random = weights is None and watch.random
    if is_random:
        messages = Messages(
            warnings=(
                f"random weights: {factory} makes them at random and loads none; "
                "give the trained ones with --weights",
            )
        )
    return Network(factory, "module", inputs, module=module, random_weights=is_random, messages=messages)


def with_user_imports(module: nn.Module, user_imports: UserImports) -> nn.Module:
    """The module with a forward that runs with the user's imports active, whenever it is called."""

    def call_with_imports(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with user_imports.active():
            return forward(*args, **kwargs)

    return wrap_forward(module, call_with_imports)


def package_root(path: Path) -> Path:
    """The folder that a file is imported from: the one that contains its top package, or its own."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def expect_ready(module: nn.Module, where: str) -> None:
    """Raise an ExportError unless the module has a forward in Python, and values in all its tensors."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UntraceableError(
            f"{where}: a TorchScript module has no Python to trace: give the module that it was made from"
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
    """Raise a UsageError unless forward can be called with one positional argument per input."""
    signature = inspect.signature(module.forward)
    parameters = signature.parameters.values()
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    has_variadic = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    min_count = sum(parameter.default is parameter.empty for parameter in positional)
    max_count = None if has_variadic else len(positional)
    unannotated = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    call = f"forward{signature.replace(parameters=unannotated, return_annotation=signature.empty)}"
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if keywords:
        raise UsageError(
            f"{where}: {call} cannot be called without the keyword {keywords[0]!r}: give it a default"
        )
    if not inputs:
        names = [parameter.name for parameter in positional[: max(1, min_count)]] or ["x"]
        example = " ".join(f"--input {name}:float32[batch,784]" for name in names)
        raise UsageError(f"--input: expected one for each argument of {call}, as in {example}")
    if len(inputs) < min_count or (max_count is not None and len(inputs) > max_count):
        if max_count is None:
            hint, expected = "", f"{min_count} or more"
        else:
            argument = positional[0].name if positional else ""
            hint = (
                f": if it is a dictionary, write its type, as in {argument}: dict" if max_count == 1 else ""
            )
            expected = str(min_count) if min_count == max_count else f"{min_count} to {max_count}"
        raise UsageError(
            f"--input: expected {expected}, one for each argument of {call}, got {len(inputs)}{hint}"
        )


def _load_file(path: Path) -> ModuleType:
    """Run the user's file as a module, as part of its package if it is in one."""
    parts = path.relative_to(package_root(path)).with_suffix("").parts
    name = ".".join(parts)
    if len(parts) > 1:
        if parts[-1] == "__init__":
            name = ".".join(parts[:-1])
        sys.modules.pop(name, None)
        return importlib.import_module(name)
    # a file outside of any package: its own name, unless another module is loaded under it
    loaded = sys.modules.get(name)
    is_taken = loaded is not None and getattr(loaded, "__file__", None) != str(path)
    if not name.isidentifier() or is_taken:
        name = f"turnpike_user_{re.sub(r'[^0-9A-Za-z_]', '_', name)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # modules that it imports may import it in turn
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _call_factory(module: ModuleType, factory: str, path: Path) -> nn.Module:
    """Call the factory, which may also be a module itself, as a global of the user's file."""
    if not hasattr(module, factory):
        raise SourceError(f"{path}: expected {_factory_names(module, factory)}, got {factory!r}")
    target = getattr(module, factory)
    if isinstance(target, nn.Module):
        return target
    if not callable(target):
        raise SourceError(f"{path}:{factory}: expected a function or a class, got {type(target).__name__}")
    if arguments := _required_arguments(target):
        raise SourceError(
            f"{path}:{factory}: expected something that can be called without arguments, and it needs "
            f"{', '.join(arguments)}: write a function that calls it with yours"
        )
    result = target()
    if not isinstance(result, nn.Module):
        raise SourceError(f"{path}:{factory}: expected a torch.nn.Module, got {type(result).__name__}")
    return result


def _factory_names(module: ModuleType, wanted: str) -> str:
    """The functions and modules that a file defines, those with names like the wanted one first."""
    names = [
        name
        for name, value in vars(module).items()
        if name[0] != "_"
        and (
            isinstance(value, nn.Module)
            or (
                (inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, nn.Module)))
                and value.__module__ == module.__name__
            )
        )
    ]
    names.sort(key=lambda name: -SequenceMatcher(None, wanted.lower(), name.lower()).ratio())
    more = f" or {len(names) - MAX_FACTORY_NAMES} others" if len(names) > MAX_FACTORY_NAMES else ""
    return f"{', '.join(names[:MAX_FACTORY_NAMES])}{more}" if names else "a function or module defined in it"


def _required_arguments(factory: Any) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (ValueError, TypeError):
        return []  # a builtin without a signature: calling it will tell
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in variadic
    ]


@contextmanager
def _user_errors(path: Path, folders: list[Path], what: str = "") -> Iterator[None]:
    """Turn any exception of the user's code into a SourceError of one line, with their file and line.

    `what` begins the line.
    """
    try:
        yield
    except SourceError:
        raise
    except SyntaxError as error:
        raise SourceError(
            f"{what}{error.filename or path}:{error.lineno}: {type(error).__name__}: {error.msg}"
        ) from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        user_frames = [
            frame
            for frame in frames
            if any(Path(frame.filename).is_relative_to(folder) for folder in folders[:2])
        ]
        where = f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else str(path)
        raise SourceError(f"{what}{where}: {error_with_type(error)}") from error
