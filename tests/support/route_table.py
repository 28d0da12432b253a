"""All routes of the service, with their levels."""

from __future__ import annotations

from typing import NamedTuple

from turnpike.service.api.app import Application
from turnpike.service.requests.auth import AccessLevel


class Entry(NamedTuple):
    """A method and path of the service, and who may call it."""

    method: str
    path: str
    level: AccessLevel


def route_table(application: Application) -> list[Entry]:
    """One entry for each method, without HEAD."""
    return [Entry(route.method, route.pattern, route.level) for route in application.router.routes]
