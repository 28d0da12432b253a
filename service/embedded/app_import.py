"""Finds the application of the user that `turnpike serve --app` names, and the service in it."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.types import ASGIApp

from turnpike.service.embedded.embedded_service import EmbeddedService
from turnpike.service.embedded.fastapi_routes import routes_of, services_in
from turnpike.service.errors import ServiceError, SettingError


class UserApp(NamedTuple):
    """An application of the user, and the service in it."""

    app: ASGIApp
    service: EmbeddedService


def import_app(name: str) -> UserApp:
    """Import an application by its name, such as `my_app:app`. The current folder is searched first.

    Raises:
        SettingError: There is no such application, or it has no service, or more than one. If its code raised
            an exception, the traceback is on standard error.
    """
    module_name, _, attributes = name.partition(":")
    module = _import_module(module_name)
    found: Any = module
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise SettingError(
                f"--app: expected an application in {module_name}, found no {attribute!r}{_instead(module)}"
            )
        found = getattr(found, attribute)
    services = list(dict.fromkeys(services_in(routes_of(found))))
    if not services and (inspect.isfunction(found) or inspect.isclass(found)):
        kind = "function" if inspect.isfunction(found) else "class"
        raise SettingError(
            f"--app: expected an application, got the {kind} {name}: "
            f"call it in {module_name}, as in `app = {attributes}()`, and name {module_name}:app"
        )
    if len(services) != 1:
        raise SettingError(
            f"--app: expected one turnpike.create_app or turnpike.router in {name}, found {len(services)}"
            + ("; one repository can hold all models" if services else _instead(module, but=found))
        )
    return UserApp(found, services[0])


def _import_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ServiceError as error:
        # such as an invalid setting in the call of create_app
        raise SettingError(f"--app: {_place_in(error, folder) or name}: {error}") from error
    except Exception as error:
        # a module that the user's module imports and that is missing keeps its traceback
        if isinstance(error, ModuleNotFoundError) and (
            error.name is not None and (name == error.name or name.startswith(f"{error.name}."))
        ):
            raise SettingError(
                f"--app: expected a module that can be imported, got {error.name!r}: there is none "
                f"in {folder} (the current folder), in PYTHONPATH or among the installed packages"
            ) from error
        _print_traceback(error)
        place = _place_in(error, folder) or name
        raise SettingError(
            f"--app: {place} raised {type(error).__name__} as {name} was imported: {error} "
            "(the traceback is above)"
        ) from error


def _print_traceback(error: Exception) -> None:
    """Print it without the calls of the import system and of this module."""
    frames = traceback.TracebackException.from_exception(error)
    frames.stack = traceback.StackSummary.from_list(
        [frame for frame in frames.stack if frame.filename != __file__ and "importlib" not in frame.filename]
    )
    sys.stderr.write("".join(frames.format()))


def _place_in(error: Exception, folder: str) -> str:
    """The last line of code in a folder that an error came through, such as `my_app.py, line 3`."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(folder) and path != Path(__file__) and "site-packages" not in path.parts:
            return f"{path.relative_to(folder)}, line {frame.lineno}"
    return ""


def _instead(module: ModuleType, but: Any = None) -> str:
    """The applications that a module has, for an error."""
    names = [
        f"{module.__name__}:{name}"
        for name, value in vars(module).items()
        if isinstance(value, FastAPI) and value is not but and any(services_in(routes_of(value)))
    ]
    return f"; did you mean {' or '.join(names)}?" if names else ""
