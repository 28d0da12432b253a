"""Finds the endpoint of a request by its method and path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from service.bounded_cache import BoundedCache
from service.http.auth import Level
from service.http.request import Request, RequestHead
from service.http.response import Response

# an endpoint returns its answer, or None if it has sent one itself
Endpoint = Callable[[Request], Awaitable[Response | None]]

# more addresses than are in use at a time, and the longest that is remembered
MAX_CACHED_MATCHES, MAX_CACHED_PATH_LENGTH = 1024, 200


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint, and the pattern of its addresses: `{name}` stands for one part of the path."""

    path: str
    method: str
    level: Level
    endpoint: Endpoint
    name: str
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request, with the parts of its path that the pattern names."""

    route: Route
    params: Mapping[str, str]


class Router:
    """The routes of the service; what matches none of them is for `fallback`, which then says 404 or 405."""

    def __init__(self, fallback: Endpoint) -> None:
        self.routes: list[Route] = []
        self._fallback = Match(_route("", "", "open", fallback, "fallback"), {})
        self._matches: BoundedCache[tuple[str, str], Match] = BoundedCache(MAX_CACHED_MATCHES)

    def add(self, method: str, path: str, level: Level, endpoint: Endpoint, name: str) -> None:
        """Answer requests of this method and path with the endpoint, for callers who may use the level."""
        self.routes.append(_route(path, method, level, endpoint, name))

    def match(self, head: RequestHead) -> Match:
        """The route of a request; raises 405 if its path has a route only for other methods."""
        if head.match is not None:
            return head.match
        key = (head.method, head.path)
        match = self._matches.get(key)
        if match is None:
            match = self._search(*key)
            if len(head.path) <= MAX_CACHED_PATH_LENGTH:
                self._matches.add(key, match)
        head.match = match
        return match

    def _search(self, method: str, path: str) -> Match:
        other_method: Match | None = None
        for route in self.routes:
            found: Any = route.regex.fullmatch(path)
            if found is not None:
                match = Match(route, found.groupdict())
                if route.method == method or (route.method == "GET" and method == "HEAD"):
                    return match
                other_method = other_method or match
        if other_method is None:
            return self._fallback
        return Match(_wrong_method(other_method.route), other_method.params)


def _route(path: str, method: str, level: Level, endpoint: Endpoint, name: str) -> Route:
    # split keeps the names at odd places
    parts = re.split(r"\{(\w+)\}", path)
    pattern = "".join(
        f"(?P<{part}>[^/]+)" if place % 2 else re.escape(part) for place, part in enumerate(parts)
    )
    return Route(path, method, level, endpoint, name, re.compile(pattern))


def _wrong_method(route: Route) -> Route:
    """The route of the same path that answers 405."""

    async def method_not_allowed(_: Request) -> Response:
        raise HTTPException(405, headers={"Allow": route.method})

    return Route(route.path, route.method, "open", method_not_allowed, route.name, route.regex)
