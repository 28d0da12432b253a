"""Finds the application of the user that `turnpike serve --app` names, and the service in it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

from starlette.types import ASGIApp

from turnpike.service.embedded.embedded_service import EmbeddedService
from turnpike.service.embedded.fastapi_routes import routes_of, services_in
from turnpike.service.errors import SettingError


class UserApp(NamedTuple):
    """An application of the user, and the service in it."""

    app: ASGIApp
    service: EmbeddedService


def import_app(name: str) -> UserApp:
    """Import an application by its name, such as `my_app:app`. The current folder is searched first.

    Raises:
        SettingError: There is no such application, or it has no service, or more than one.
    """
    module_name, _, attributes = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # a module that the user's module imports and that is missing keeps its traceback
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise SettingError(
            f"--app: expected a module that can be imported from {folder}, got {module_name!r}"
        ) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise SettingError(f"--app: expected an application in {module_name}, found no {attribute!r}")
        found = getattr(found, attribute)
    services = list(dict.fromkeys(services_in(routes_of(found))))
    if len(services) != 1:
        raise SettingError(
            f"--app: expected one turnpike.create_app or turnpike.router in {name}, found {len(services)}"
            + ("; one repository can hold all models" if services else "")
        )
    return UserApp(found, services[0])
