"""All routes of the service, those of the framework and our own, with their levels."""

from __future__ import annotations

from typing import NamedTuple

from fastapi.routing import iter_route_contexts
from starlette.routing import Route

from turnpike.service.api.app import Application
from turnpike.service.requests.auth import AccessLevel, level_of


class Entry(NamedTuple):
    """A method and path of the service; the level is None if the route forgot to declare one."""

    method: str
    path: str
    level: AccessLevel | None


def route_table(application: Application) -> list[Entry]:
    """One entry for each method, without HEAD."""
    entries = [Entry(route.method, route.path, route.level) for route in application.router.routes]
    for context in iter_route_contexts(application.fastapi.routes):
        route = context.original_route
        if isinstance(route, Route):
            level = level_of(route)
            entries += [Entry(method, route.path, level) for method in (route.methods or set()) - {"HEAD"}]
    return entries
